"""The docs say what is true: links lead somewhere, code blocks run, settings and columns exist, nothing is stale.

A block after `<!-- file: NAME -->` is written to a file of that name; one after `<!-- run -->` is run, shell lines as
real commands on a tiny profile, Python in a process of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from benchmark import store
from benchmark.accuracy import COVERING_RATE
from benchmark.cli.main import REMOVED
from benchmark.cli.tables import every_one, needs_of
from benchmark.config.profile import PROFILES, load_profile
from benchmark.config.sections import SECTIONS, fields_of
from benchmark.config.selection import select
from benchmark.exhibits.base import all_exhibits
from benchmark.tools import docs as generated
from datasets.registry import SOURCES
from methods.registry import discover
from tests.conftest import ROOT, TinyBenchmark, command_of, make_tiny

BLOCK = re.compile(r"(?:<!-- (?:(?P<run>run)|file: (?P<name>\S+)) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = "./reproduce.sh "


def tracked() -> list[Path]:
    """Files of the project: what git knows, or everything that is not hidden where there is no git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        names = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        hidden = {"data", "results", ".venv"}
        names = [p for p in ROOT.rglob("*") if not hidden & set(p.relative_to(ROOT).parts)]
    return [path for path in names if path.is_file()]


PAGES = sorted({path for path in tracked() if path.suffix == ".md"} | {*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")})


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    file: str  # the name to write it to, or empty
    run: bool


def blocks(page: Path) -> list[Block]:
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(m["language"], m["text"], m["name"] or "", bool(m["run"])) for m in found]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Links ----------------------------------------------------------------------------------------------------------------
def anchors(page: Path) -> set[str]:
    """Anchors of the headings as GitHub makes them."""
    found: dict[str, int] = {}
    result = set()
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        result.add(f"{slug}-{found[slug]}" if slug in found else slug)
        found[slug] = found.get(slug, 0) + 1
    return result


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists() and path.is_relative_to(ROOT), f"{name_of(page)}: {link} leads nowhere in the project"
        if anchor:
            assert anchor in anchors(path), f"{name_of(page)}: {link}: no such heading"


# What the docs name exists --------------------------------------------------------------------------------------------
def commands(page: Path) -> Iterator[str]:
    """Every full command line of a page, from shell blocks and inline code."""
    text = page.read_text(encoding="utf-8")
    for block in blocks(page):
        if block.language == "bash":
            yield from (line.split("  #")[0].strip() for line in block.text.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_can_be_typed(page: Path) -> None:
    for line in commands(page):
        words = shlex.split(line.removeprefix(COMMAND)) if line.startswith(COMMAND) else []
        if words and words[0] not in ("test", "python") and "…" not in line and "|" not in line:
            try:
                command, rest = command_of(words)
                command.make_context(words[0], rest)
            except (KeyError, click.UsageError):
                pytest.fail(f"{name_of(page)}: `{line}` is refused")
            except click.exceptions.Exit:
                pass  # --help


def test_every_setting_that_the_docs_name_exists_and_takes_the_value() -> None:
    scopes = {name: fields_of(section) for name, section in SECTIONS.items()}
    scopes |= {name: dict(entry.config) for name, entry in discover().entries.items()}
    pattern = re.compile(r"`(?:--set )?(" + "|".join(map(re.escape, scopes)) + r")\.(\w+)=([^`\s…]+)`")
    checked = 0
    for page in PAGES:
        for scope, key, value in pattern.findall(page.read_text(encoding="utf-8")):
            where = f"{name_of(page)}: {scope}.{key}={value}"
            assert key in scopes[scope], f"{where}: no such field"
            scopes[scope][key].parse(value)
            if page.name == "protocol.md" and scope not in SECTIONS:
                other = scopes[scope][key].parse(value) != scopes[scope][key].default
                assert other, f"{where} is the default, not the other reading"
            checked += 1
    assert checked > 50


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/protocol.md", [f"`{name}." for name in load_profile("paper").methods]),
        ("docs/data.md", [f"`{name}`" for name in SOURCES]),
        ("docs/reproduce.md", [f"reproduce.sh {one.name}" for one in all_exhibits() if one.kind != "plot"]),
        ("CHANGELOG.md", [f"`{name}`" for name in REMOVED]),
    ],
    ids=["readings", "datasets", "tables", "removed-commands"],
)
def test_a_page_names_everything_of_its_kind(page: str, names: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [name for name in names if name not in text]


def test_the_numbers_of_runs_are_those_of_the_plan() -> None:
    text = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    extra: dict[str, list[int]] = {}
    for profile in ("paper", "quick"):
        selection = select(profile)
        parts_of_all = needs_of(every_one(), selection)
        needs = {exhibit.name: {spec.digest for spec in need.specs} for exhibit, need in parts_of_all.items()}
        assert re.search(rf"^\| `{profile}` .*\| {len(needs['table2'])} \|$", text, re.M), (
            profile,
            len(needs["table2"]),
        )
        for what, digests in needs.items():
            extra.setdefault(what, []).append(len(digests - needs["table2"]))
        extra.setdefault("all", []).append(len(set().union(*needs.values()) - needs["table2"]))
    for what in ("table4", "fig2", "fig5", "fig6", "all"):
        paper, quick = extra[what]
        assert re.search(rf"^\| `./reproduce.sh {what}` .*\| {paper}, {quick} \|$", text, re.M), (what, paper, quick)


def test_generated_parts_are_fresh() -> None:
    assert generated.main(["--check"]) == 0


def test_every_method_of_the_tree_has_its_reference() -> None:
    for entry in filter(generated.has_section, generated.ordered()):
        assert " et al.: " in generated.citation(entry), f"{entry.file} does not begin with its reference"


def test_a_stale_part_is_renewed_and_a_page_without_its_markers_refused() -> None:
    page = "before\n<!-- part -->\nold\n<!-- /part -->\nafter\n"
    assert generated.renewed(page, {"part": lambda: "new"}) == page.replace("old", "new")
    with pytest.raises(ValueError, match="markers"):
        generated.renewed(page.replace("<!-- /part -->", ""), {"part": lambda: "new"})


# The project says nothing about the machine it was made on ------------------------------------------------------------
PLACES = re.compile(r"(?<![\w.~-])/(?:" + "|".join(("work", "root", "tmp/" + "venv")) + r")(?![\w-])")


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    for path in tracked():
        if path.suffix not in (".npz", ".png", ".pdf"):
            found = PLACES.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name_of(path)} names {found and found[0]}"


# The blocks run -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> TinyBenchmark:
    """One results folder for all pages: what one has trained, the next finds done, in whatever order they come."""
    return make_tiny(tmp_path_factory.mktemp("docs"))


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")


def call_of(line: str) -> list[str]:
    """Return a shell line of a page that is not a command of the program as a process."""
    if line.startswith(f"{COMMAND}python "):
        script, *words = shlex.split(line.removeprefix(f"{COMMAND}python "))
        return [sys.executable, str(ROOT / script), *words]
    return ["bash", "-c", line]


def run_blocks(page: Path, tiny: TinyBenchmark) -> list[str]:
    """Every runnable block of a page in the benchmark's folder, as a reader would; returns what they print.

    Shell lines are a process each. The Python blocks share one, each with names of its own, after all shell lines.
    """
    runnable = [block for block in blocks(page) if block.run]
    lines = [line for b in runnable if b.language == "bash" for line in b.text.splitlines() if line.strip()]
    outputs = []
    for line in lines:
        if line.startswith(COMMAND) and not line.startswith(f"{COMMAND}python "):
            done = tiny.run(*shlex.split(line.removeprefix(COMMAND)), folder=tiny.folder)
        else:
            call = call_of(line)
            done = subprocess.run(call, cwd=tiny.folder, text=True, capture_output=True, timeout=300)
        assert done.returncode == 0, f"{name_of(page)}: {line}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    python = [block.text for block in runnable if block.language == "python"]
    if python:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1", "MPLBACKEND": "Agg"}
        call = [sys.executable, "-c", "\n".join(f"exec({text!r}, {{}})" for text in python)]
        done = subprocess.run(call, cwd=tiny.folder, env=environment, text=True, capture_output=True, timeout=300)
        assert done.returncode == 0, f"{name_of(page)}: {done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    return outputs


def test_the_method_of_the_readme_gets_its_row(shared: TinyBenchmark) -> None:
    page = ROOT / "README.md"
    write_files(page, shared.folder)
    lines = (shared.folder / "mine.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 20, "the README promises 20 lines"
    outputs = run_blocks(page, shared)
    table = (shared.results / "tables" / "tiny" / "table2-with-mine.md").read_text(encoding="utf-8")
    assert re.search(r"\| Mine \| \**(<u>)?\d+\.\d\d±\d", table), table
    assert any("all checks pass" in text for text in outputs)
    assert any("Mine" in text and "Table 2" in text for text in outputs)
    assert {d["status"] for d in shared.documents() if d["method"] == "mine"} == {"done"}


def test_the_page_on_own_data_goes_from_files_to_predictions(tmp_path: Path) -> None:
    page, tiny = ROOT / "docs" / "own-data.md", TinyBenchmark(tmp_path, PROFILES / "own.toml")
    write_files(page, tmp_path)
    outputs = run_blocks(page, tiny)
    assert "nothing is scored; on held-out rows: covering rate" in outputs[0] and COVERING_RATE in outputs[0]
    assert "→" in outputs[3] and "flowers (CR)" in outputs[6]
    predicted = (tmp_path / "predictions.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in predicted[1:]] == ["setosa", "versicolor", "setosa"]
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 22
    assert "['setosa' 'versicolor' 'setosa']" in outputs[-1]


def test_the_page_on_methods_works_from_the_file_to_the_row(shared: TinyBenchmark) -> None:
    page = ROOT / "docs" / "add-a-method.md"
    write_files(page, shared.folder)
    outputs = run_blocks(page, shared)
    assert any("Slow" in text and "Table 2" in text for text in outputs)
    labels = {d["label"] for d in shared.documents()}
    assert {"slow", "slow[memory=0.5]", "proden"} <= labels
    own_profile = shared.folder / "my.toml"
    plan = TinyBenchmark(shared.folder, own_profile).run(
        "table2", "--plugin", str(shared.folder / "slow.py"), "--dry-run", check=True
    )
    assert "Plan:" in plan.stdout


def test_the_pages_on_results_and_reproducing_run_and_name_every_column(shared: TinyBenchmark) -> None:
    shared.run("run", check=True)
    page = ROOT / "docs" / "results.md"
    run_blocks(page, shared)
    assert (shared.folder / "curves.png").stat().st_size > 1000
    run_blocks(ROOT / "docs" / "reproduce.md", shared)
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", text))
    document = shared.documents()[0]
    metrics = {c for c in store.load(shared.results).columns if not c.startswith("loss_")}
    for what in (set(store.runs(shared.results).columns), metrics, set(document), set(document["summary"])):
        assert not what - named, f"docs/results.md does not explain {sorted(what - named)}"
    assert not {*document["cost"], *document["time"]} - named


def test_the_page_on_sharing_packs_verifies_merges_and_compares(tiny_benchmark: TinyBenchmark) -> None:
    tiny_benchmark.run("run", "--methods", "proden", "--epochs", "1", check=True)
    *_, verified, merged, compared = run_blocks(ROOT / "docs" / "share.md", tiny_benchmark)
    assert "verification passed for 'results'" in verified and "Copied 0 runs" in merged
    assert "Only in theirs: 0 runs" in compared
    assert re.search(r"digits +proden\S* +0\.0 +0\.0 +2 +2", compared), compared


# Files around the project ---------------------------------------------------------------------------------------------
def test_the_workflow_and_the_citation_fit_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert "run: ./reproduce.sh test\n" in workflow
    lower, upper = (int(minor) for minor in re.findall(r"3\.(\d+)", project["requires-python"]))
    assert all(lower <= int(minor) < upper for minor in re.findall(r'"3\.(\d+)"', workflow))
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation and f"\nlicense: {project['license']}\n" in citation


def test_the_modules_that_the_architecture_page_names_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {name.strip("/") for name in re.findall(r"`([a-z_]+/[a-z_0-9/.]*)`", page)}
    assert len(names) > 30
    for name in sorted(names):
        places = [folder / f"{name}{suffix}" for folder in (ROOT, ROOT / "benchmark") for suffix in ("", ".py")]
        places += [ROOT / package / name for package in ("methods", "datasets")]
        assert any(place.exists() for place in places), f"docs/architecture.md names {name}"
