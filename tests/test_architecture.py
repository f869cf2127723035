"""The shape of the tree: imports go one way, nothing branches on a method's or data set's name, nothing is shadowed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from datasets.registry import SOURCES
from methods.registry import discover
from tests.conftest import ROOT

PACKAGES = ("methods", "datasets", "benchmark")
FORBIDDEN = {"datasets": {"benchmark", "methods"}, "methods": {"benchmark", "datasets"}, "benchmark": set()}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_one_way(package: str) -> None:
    for path in sources(package):
        wrong = imported(ast.parse(path.read_text())) & FORBIDDEN[package]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_nothing_outside_its_own_file_branches_on_a_name() -> None:
    names = {*discover().entries, *SOURCES}
    for package in PACKAGES:
        for path in sources(package):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Compare):
                    constants = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)} & names
                    mentioned = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
                        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
                    }
                    suspicious = constants and mentioned & {"method", "name", "dataset", "algorithm"}
                    own = path.stem.replace("_", "-") in constants
                    assert not suspicious or own, f"{path.relative_to(ROOT)}:{node.lineno} branches on {constants}"


def test_a_package_named_datasets_elsewhere_is_not_taken(tmp_path: Path) -> None:
    other = tmp_path / "site" / "datasets"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise RuntimeError('the wrong datasets')\n")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{other.parent}", "PYTHONSAFEPATH": "1"}
    for folder in (tmp_path / "site", ROOT):
        done = subprocess.run(
            [sys.executable, "-m", "benchmark", "list", "datasets"],
            cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0 and "glyphs" in done.stdout, done.stderr
