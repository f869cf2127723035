"""The shape of the tree: imports go one way, nothing branches on a method's or data set's name, nothing is shadowed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
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


def modules() -> dict[str, Path]:
    """Every module of the three packages by its dotted name."""
    paths = [path for package in PACKAGES for path in sources(package)]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imports_of(path: Path, known: Collection[str], type_only: bool) -> set[str]:
    """The modules that a file imports, inside functions too, and with `type_only` where only a type checker looks."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if not type_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in whole}
    return found & set(known)


def rooms() -> list[list[str]]:
    """The order of docs/architecture.md: groups from left to right."""
    image = (ROOT / "docs" / "architecture.md").read_text().split("<!-- rooms -->")[1]
    return [group.split() for group in image.replace("`", " ").split("<")]


def test_rooms_import_only_what_stands_left_of_them_in_the_image() -> None:
    rank = {room: place for place, group in enumerate(rooms()) for room in group}
    known = modules()
    assert set(rank) == {name.split(".")[1] for name in known if name.startswith("benchmark.")} - {"__main__"}
    for name, path in known.items():
        room = name.split(".")[1] if name.startswith("benchmark.") else ""
        for other in imports_of(path, known, type_only=True) if room in rank else ():
            if other.startswith("benchmark."):
                target = other.split(".")[1]
                allowed = target == room or rank[target] < rank[room] or (rank[target] == rank[room] == 0)
                assert allowed, f"{path.relative_to(ROOT)} imports {other}, which stands right of {room}"


def test_no_two_modules_import_each_other() -> None:
    known = modules()
    graph = {name: imports_of(path, known, type_only=False) - {name} for name, path in known.items()}
    assert len(graph) > 100 and graph["benchmark.runner.worker"] >= {"benchmark.store", "benchmark.trainer.trainer"}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle in it


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
                    suspicious = constants and mentioned & {"method", "name", "dataset", "algorithm", "label"}
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
        assert done.returncode == 0 and "letter" in done.stdout, done.stderr
