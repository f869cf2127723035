#!/usr/bin/env bash
# The one entrance: sets the environment up on first use, then runs `python -m benchmark …`; `test` runs every check,
# `python` anything else in this environment.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
venv="$here/.venv"
extra=""
[ "${1:-}" = "test" ] && extra="dev"

die() { echo "reproduce.sh: $*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints the dependencies of pyproject.toml (and of one extra), or with --check says whether this environment has them.
requirements='
import sys, tomllib, pathlib
project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
wanted = project["dependencies"] + (project["optional-dependencies"][sys.argv[2]] if sys.argv[2] else [])
if "--check" not in sys.argv:
    print("\n".join(wanted))
    sys.exit()
from importlib.metadata import PackageNotFoundError, version
def parts(text):
    return [int(p) if p.isdigit() else 0 for p in text.split("+")[0].split(".")]
for line in wanted:
    name, _, least = line.partition(">=")
    try:
        if parts(version(name)) < parts(least):
            sys.exit(1)
    except PackageNotFoundError:
        sys.exit(1)
'

satisfied() { "$1" -c "$requirements" "$here/pyproject.toml" "$extra" --check 2>/dev/null; }

find_python() {
    local name
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
        if command -v "$name" >/dev/null 2>&1 && new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    die "Candid needs Python 3.11 or newer; install one, or name it: PYTHON=/path/to/python3.12 ./reproduce.sh …"
}

install() {
    local python stamp
    python="$(find_python)"
    [ ! -e "$venv" ] || [ -w "$venv" ] || die "$venv belongs to somebody else; activate an environment of your own that has the dependencies, or clone the repository anew."
    echo "Setting up $venv (once; torch is large, this takes some minutes) …" >&2
    # A folder without a working pip is what an interrupted set-up leaves behind.
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv" ||
        die "could not make $venv; on Debian the package python3-venv is needed."
    rm -f "$venv"/.candid-*
    "$venv/bin/python" -c "$requirements" "$here/pyproject.toml" "$extra" >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r "$venv/requirements.txt" -c "$here/constraints.txt" >&2 ||
        die "installing the dependencies failed (see above); run the same command again to go on."
    touch "$(stamp_file)"
    [ -z "$extra" ] || (extra="" && touch "$(stamp_file)") # who has the extra has the rest
}

stamp_file() { echo "$venv/.candid-$extra-$(cat "$here/pyproject.toml" "$here/constraints.txt" | cksum | tr ' ' '-')"; }

if [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v python >/dev/null 2>&1 &&
    new_enough python && satisfied python; then
    python=python
else
    if [ ! -e "$(stamp_file)" ]; then
        exec 9>"$here/.setup.lock"
        if command -v flock >/dev/null 2>&1; then flock 9; fi
        [ -e "$(stamp_file)" ] || install
        exec 9>&-
    fi
    python="$venv/bin/python"
fi

# The project's own folders come first on the path, and the caller's folder is not on it: neither Hugging Face's
# `datasets` nor a stray folder can be imported instead.
export PYTHONSAFEPATH=1 PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}"

if [ "${1:-}" = "test" ]; then
    shift
    cd "$here"
    "$python" -m ruff check .
    "$python" -m ruff format --check .
    "$python" -m mypy
    exec "$python" -m pytest -n 2 "$@"
fi
if [ "${1:-}" = "python" ]; then # any script, notebook server or shell of the caller's; its own folder comes last
    shift
    export PYTHONPATH="$PYTHONPATH:$PWD"
    exec "$python" "$@"
fi
exec "$python" -m benchmark "$@"
