#!/usr/bin/env bash
# The one entrance: sets the environment up on first use, then runs `python -m benchmark …`; `test` runs every check,
# `python` anything else in this environment.
set -euo pipefail
unset CDPATH # with it `cd` goes elsewhere and prints where

here="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)"
venv="$here/.venv"
extra=""
[ "${1:-}" = "test" ] && extra="dev"

die() { echo "reproduce.sh: $*" >&2; exit 1; }

# pyproject.toml has the supported versions of Python: 3.oldest up to, but not including, 3.unsupported.
bounds='s/^requires-python = ">=3\.\([0-9]*\),<3\.\([0-9]*\)".*/\1 \2/p'
read -r oldest unsupported < <(sed -n "$bounds" "$here/pyproject.toml") ||
    die "$here/pyproject.toml is missing or names no versions of Python; clone the repository anew."

# at_least PYTHON: whether it is new enough; supported PYTHON: whether the pinned packages have wheels for it, too.
at_least() { "$1" -c "import sys; sys.exit(sys.version_info < (3, $oldest))" 2>/dev/null; }
supported() { at_least "$1" && "$1" -c "import sys; sys.exit(sys.version_info >= (3, $unsupported))" 2>/dev/null; }

# Prints the dependencies of pyproject.toml (and of one extra), or with --check says whether this environment has them.
requirements='
import sys, tomllib, pathlib
project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
dependencies = project["dependencies"] + (project["optional-dependencies"][sys.argv[2]] if sys.argv[2] else [])
if "--check" not in sys.argv:
    print("\n".join(dependencies))
    sys.exit()
from importlib.metadata import PackageNotFoundError, version
def parts(text):
    return [int(p) if p.isdigit() else 0 for p in text.split("+")[0].split(".")]
for line in dependencies:
    name, _, least = line.partition(">=")
    try:
        if parts(version(name)) < parts(least):
            sys.exit(1)
    except PackageNotFoundError:
        sys.exit(1)
'

satisfied() { "$1" -c "$requirements" "$here/pyproject.toml" "$extra" --check 2>/dev/null; }

find_python() {
    local name newer="" names=(python3 $(seq -f 'python3.%g' $((unsupported - 1)) -1 "$oldest") python)
    [ -z "${PYTHON:-}" ] || names=("$PYTHON")
    for name in "${names[@]}"; do
        command -v "$name" >/dev/null 2>&1 || continue
        if supported "$name"; then
            command -v "$name"
            return
        fi
        if at_least "$name"; then newer="${newer:-$("$name" --version)}"; fi
    done
    die "Candid needs Python 3.$oldest to 3.$((unsupported - 1))${newer:+, and $newer is newer than the pinned packages};" \
        "install one, or name it: PYTHON=/path/to/python3.12 ./reproduce.sh …"
}

install() {
    local python
    python="$(find_python)"
    echo "Setting up $venv (once; torch is large, this takes some minutes) …" >&2
    # Built anew where a finished environment does not work, an interrupted set-up has left no pip, or Python is gone.
    if [ -e "$(stamp_file)" ] || ! supported "$venv/bin/python" ||
        ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --clear "$venv" || die "could not make $venv; on Debian the package python3-venv is needed."
    fi
    rm -f "$venv"/.candid-*
    "$venv/bin/python" -c "$requirements" "$here/pyproject.toml" "$extra" >"$venv/requirements.txt"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r "$venv/requirements.txt" -c "$here/constraints.txt" >&2 ||
        die "installing the dependencies failed (see above); run the same command again to go on."
    touch "$(stamp_file)"
    [ -z "$extra" ] || (extra="" && touch "$(stamp_file)") # who has the extra has the rest
}

stamp_file() { echo "$venv/.candid-$extra-$(cat "$here/pyproject.toml" "$here/constraints.txt" | cksum | tr ' ' '-')"; }

# Whether the environment was set up for these dependencies and its interpreter still finds them.
ready() {
    [ -e "$(stamp_file)" ] &&
        "$venv/bin/python" -c 'import sys; from importlib.util import find_spec; sys.exit(not find_spec("torch"))' 2>/dev/null
}

if [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v python >/dev/null 2>&1 &&
    at_least python && satisfied python; then
    python=python
else
    if ! ready; then
        for place in "$here" "$venv" "$here/.setup.lock"; do
            [ ! -e "$place" ] || [ -w "$place" ] || die "$place belongs to somebody else;" \
                "activate an environment of your own that has the dependencies, or clone the repository anew."
        done
        exec 9>"$here/.setup.lock"
        if command -v flock >/dev/null 2>&1; then flock 9; fi
        ready || install
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
    code=0
    "$python" -m ruff check . || code=1
    "$python" -m ruff format --check . || { code=1; echo "To format these files: ./reproduce.sh python -m ruff format ." >&2; }
    "$python" -m mypy || code=1
    "$python" -m pytest -n 2 "$@" || code=$?
    exit "$code"
fi
if [ "${1:-}" = "python" ]; then # any script, notebook server or shell of the caller's; its own folder comes last
    shift
    export PYTHONPATH="$PYTHONPATH:$PWD"
    exec "$python" "$@"
fi
exec "$python" -m benchmark "$@"
