"""reproduce.sh: environments that are broken, links, other users, versions of Python. pip and torch are stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAKE = "import sys, pathlib; pathlib.Path(sys.prefix, 'pip.log').open('a').write(sys.argv[1] + chr(10))"


def call(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH")}
    return subprocess.run(
        [script, *words],
        cwd=script.parent.parent,
        env=inherited | environment,
        text=True,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose program prints its arguments, with an environment that is set up."""
    folder = tmp_path / "candid"
    (folder / "benchmark").mkdir(parents=True)
    for name in ("reproduce.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    (folder / "benchmark" / "__main__.py").write_text("import sys; print('ran', sys.argv[1:])")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    (site,) = (folder / ".venv").glob("lib/python3.*/site-packages")
    for name, text in (
        ("torch", ""),
        ("mypy", ""),
        ("pip", MAKE),
        ("ruff", "import sys; sys.exit('format' in sys.argv)"),
    ):
        (site / f"{name}.py").write_text(text)
    (site / "pytest.py").write_text("import sys; print('tests', sys.argv[1:])")
    assert call(folder / "reproduce.sh", "first").stdout == "ran ['first']\n"  # writes the stamp
    return folder


def test_links_and_cdpath_lead_to_the_checkout(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "link").symlink_to("../candid/reproduce.sh")
    (tmp_path / "bin" / "again").symlink_to("link")
    for script in (checkout / "reproduce.sh", tmp_path / "bin" / "again"):
        done = call(script, "table2", CDPATH=f"{tmp_path}:/")
        assert (done.stdout, done.stderr) == ("ran ['table2']\n", "")


def test_an_environment_without_its_python_is_built_anew(checkout: Path) -> None:
    for python in (checkout / ".venv" / "bin").glob("python*"):
        python.unlink()
    fake = checkout / "python"  # makes the environment without fetching pip
    fake.write_text(f'#!/bin/bash\n[ "$2" = venv ] && {{ echo "built: $4"; exit 1; }}\nexec {sys.executable} "$@"\n')
    fake.chmod(0o755)
    done = call(checkout / "reproduce.sh", PYTHON=str(fake))
    assert done.returncode == 1 and done.stdout == f"built: {checkout / '.venv'}\n"


def test_other_dependencies_are_installed_into_the_environment(checkout: Path) -> None:
    (checkout / "constraints.txt").write_text("")
    done = call(checkout / "reproduce.sh", "table2")
    assert "Setting up" in done.stderr and done.stdout == "ran ['table2']\n"
    assert (checkout / ".venv" / "pip.log").read_text().splitlines().count("install") == 2


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become another user")
def test_another_users_checkout_is_one_sentence() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        Path(name).chmod(0o755)
        for file in ("reproduce.sh", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / file, name)
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"{name}/reproduce.sh"]
        done = subprocess.run(words, cwd="/", env={"PATH": os.defpath}, text=True, capture_output=True)
    assert done.returncode == 1 and "clone the repository anew" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_python_newer_than_the_pinned_packages_is_one_sentence(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv")
    newer = checkout / "python3.99"
    newer.write_text('#!/bin/bash\ncase "$*" in --version) echo Python 3.99.0;; *">="*) exit 1;; esac\n')
    newer.chmod(0o755)
    done = call(checkout / "reproduce.sh", PYTHON=str(newer))
    assert done.returncode == 1 and "Python 3.99.0 is newer" in done.stderr and len(done.stderr.splitlines()) == 1


def test_tests_are_run_although_the_formatter_complains(checkout: Path) -> None:
    assert call(checkout / "reproduce.sh", "test", "--version").returncode == 1
    done = call(checkout / "reproduce.sh", "test", "tests/one.py")
    assert done.returncode == 1 and "ruff format" in done.stderr and "tests ['-n', '2', 'tests/one.py']" in done.stdout


def test_any_script_runs_in_the_environment_with_the_project_on_its_path(tmp_path):
    """From another folder, beside a folder of the user's that is called as one of ours."""
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "helper.py").write_text("word = 'mine'\n")
    (tmp_path / "script.py").write_text(
        "import sys\nimport helper\nfrom benchmark import store\nfrom datasets import registry\n"
        "print(helper.word, sys.argv[1:], 'digits' in registry.SOURCES)\n"
    )
    words = [str(ROOT / "reproduce.sh"), "python", "script.py", "a", "--b"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "mine ['a', '--b'] True\n", done.stderr
