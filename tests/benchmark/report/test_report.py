"""Claims on the report page: one file, everything in it, nothing from results runs; and it works in a real browser."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli.main import parser
from benchmark.errors import CandidError
from benchmark.exhibits.parts.style import style_of
from benchmark.plan.resolution import Override
from benchmark.report.curves import MISSING, curves, epoch_grid, quantise, thin
from benchmark.report.page import MARK, compact, embed, fingerprint, up_to_date, write_report
from benchmark.report.scope import Scope
from benchmark.report.sections import candidate_cards
from benchmark.store import RunFolder
from datasets import glyphs
from datasets.labels import candidates
from tests.conftest import ROOT
from tests.support import chromium
from tests.support.fake_store import spoil, write_store

FOUR = ("cel", "dirk", "proden", "average")


def content(page: Path) -> dict[str, Any]:
    """The data block of a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found
    return json.loads(found[1])


def report(results: Path, profile: str | None = None) -> Path:
    return write_report(results, results / "report.html", Scope(profile))


def view_of(results: Path, title: str = "quick") -> dict[str, Any]:
    return next(v for v in content(report(results))["views"] if v["title"] == title)


def cell(view: dict[str, Any], method: str, dataset: str) -> dict[str, Any]:
    return next(c for c in view["cells"] if (c["m"], c["d"]) == (method, dataset))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path, profile="quick", methods=FOUR, epochs=8)
    return tmp_path


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole paper profile, controls and references too, with a few runs that did not end well."""
    folder = tmp_path_factory.mktemp("paper")
    write_store(folder, edit=spoil)
    write_store(folder, methods=("proden-2v", "dirk-plain", "average", "supervised"))
    return folder


# content ------------------------------------------------------------------------------------------------------------
def test_the_full_paper_profile_fits_into_two_megabytes(paper: Path) -> None:
    page = report(paper)
    assert page.stat().st_size < 2_000_000
    (view,) = content(page)["views"]
    assert (view["planned"], len(view["methods"]), len(view["datasets"])) == ([302, 306], 17, 6)
    assert not view["complete"] and view["states"]["oom"] == 1


def test_numbers_are_those_of_table_2_with_the_published_ones_beside_them(paper: Path) -> None:
    view = content(report(paper))["views"][0]
    found = cell(view, "cel", "cub200")
    values = [v for _, v in found["values"]]
    assert found["mean"] == pytest.approx(np.mean(values), abs=1e-4)
    assert found["std"] == pytest.approx(np.std(values, ddof=1), abs=1e-4)
    assert found["published"] == [68.6, 0.1]
    assert found["difference"] == pytest.approx(found["mean"] - 68.6, abs=1e-4)
    # Every value with its source, once for all cells that share it; and the digests of every seed.
    lines = dict(view["values"][place] for place in found["values_of"] if "train." in view["values"][place][1])
    assert any("train.epochs=500" in values for values in lines.values()) and "default" in lines
    assert [(seed, len(weights)) for seed, _, weights in found["digests"]] == [(0, 64), (1, 64), (2, 64)]
    assert len(view["values"]) < len(view["cells"]) * 3
    assert cell(view, "average", "cub200")["place"] is None


def test_a_cell_that_lacks_seeds_is_not_complete_and_its_run_is_listed_with_the_reason(paper: Path) -> None:
    view = content(report(paper))["views"][0]
    found = cell(view, "idgp", "cub200")
    assert (found["n"], found["complete"], found["place"]) == (2, False, None)
    (listed,) = [f for f in view["failures"] if f["m"] == "idgp"]
    assert (listed["status"], listed["seed"]) == ("diverged", 2) and "step 20412" in listed["reason"]
    assert not any("step 20412" in note for note in view["notes"])


def test_every_pair_is_compared_and_both_sides_agree(paper: Path) -> None:
    compare = content(report(paper))["views"][0]["compare"]
    swap = str.maketrans("WL", "LW")
    assert set(compare["tests"]) == {"paired", "student", "welch"}
    for rows in compare["tests"].values():
        for i in range(13):
            assert rows[i][i] is None
            for j in range(i):
                assert rows[i][j]["o"] == rows[j][i]["o"].translate(swap)
    assert len(compare["tests"]["paired"][0][1]["o"]) == 6


def test_colours_are_those_of_the_figures(store: Path) -> None:
    for method in view_of(store)["methods"]:
        assert method["colour"] == style_of(method["name"]).colour


def test_a_source_s_view_says_how_many_of_its_numbers_agree(tmp_path: Path) -> None:
    write_store(tmp_path, profile="realworld-p20", datasets=["lost"], seeds=range(5), epochs=3, candidates=False)
    (view,) = content(report(tmp_path))["views"]
    assert "of 1 comparable cells agree" in view["notes"][0]
    assert ("differs" in view["notes"][1]) == view["notes"][0].startswith("Published numbers: 0 of 1")


def test_the_command_of_a_cell_is_understood_by_the_command_line(store: Path) -> None:
    write_store(store, profile="quick", methods=["cel"], datasets=["fashion"], epochs=4, variant={"beta": 0.5})
    longer = Override("train", "epochs", "30")
    write_store(store, profile="quick", methods=["cc"], datasets=["fashion"], epochs=4, overrides=[longer])
    views = {v["title"]: v for v in content(report(store))["views"]}
    plain = cell(views["quick"], "cel", "fashion")["command"]
    assert plain == "./reproduce.sh run --profile quick --methods cel --datasets fashion --seeds 0,1,2"
    evidence = cell(views["quick"], "cel", "fashion")
    assert parser().parse_args(shlex.split(evidence["show"])[1:]).command.name == "show"
    assert [len(digest) for _, *both in evidence["digests"] for digest in both] == [64] * 6
    (variant,) = views["quick"]["variants"]
    assert variant["command"].endswith("--set method.beta=0.5") and variant["label"] == "cel[beta=0.5]"
    other = cell(views["quick with train.epochs=30"], "cc", "fashion")["command"]
    for command in (plain, variant["command"], other):
        assert parser().parse_args(shlex.split(command)[1:]).command.name == "run"
    assert other.endswith("--set train.epochs=30")


def test_overrides_of_the_protocol_make_a_view_of_their_own(store: Path) -> None:
    before = cell(view_of(store), "cel", "fashion")
    short = Override("train", "epochs", "4")
    write_store(store, profile="quick", methods=["cel"], epochs=4, overrides=[short])
    views = {v["title"]: v for v in content(report(store))["views"]}
    assert set(views) == {"quick", "quick with train.epochs=4"}
    assert cell(views["quick"], "cel", "fashion") == before


def test_several_profiles_share_a_page_and_one_can_be_chosen(store: Path) -> None:
    write_store(store, methods=["cel"], datasets=["cub200"], epochs=5)
    assert [v["title"] for v in content(report(store))["views"]] == ["paper", "quick"]
    assert [v["title"] for v in content(report(store, "paper"))["views"]] == ["paper"]


def test_a_method_that_is_no_longer_registered_is_shown_and_marked(store: Path) -> None:
    def rename(document: dict[str, Any]) -> None:
        document["method"] = document["label"] = "gone"

    write_store(store, profile="quick", methods=["cc"], epochs=4, edit=rename)
    view = view_of(store)
    (method,) = [m for m in view["methods"] if m["name"] == "gone"]
    found = cell(view, "gone", "fashion")
    assert method["kind"] == "unregistered" and found["n"] == 3 and found["place"] is None
    assert "gone" not in view["compare"]["methods"]
    assert "--plugin gone.py" in found["command"]


def test_runs_of_mixed_code_are_marked(store: Path) -> None:
    def older(document: dict[str, Any]) -> None:
        document["environment"]["code_version"] = "older"

    write_store(store, profile="quick", methods=["cc"], epochs=4, edit=older)
    view = view_of(store)
    assert any(note.startswith("Warning") and "code versions" in note for note in view["notes"])
    (entry,) = [e for e in view["environment"] if e["key"] == "code_version"]
    assert dict(map(tuple, entry["values"])) == {"fake00000000": 24, "older": 6}


def test_runs_of_an_earlier_form_of_the_profile_are_marked(store: Path) -> None:
    def other(document: dict[str, Any]) -> None:
        document["config"]["train"]["lr"] = 9.0

    write_store(store, profile="quick", methods=["cc"], datasets=["fashion"], epochs=4, edit=other)
    assert any("3 runs were made with other values" in note for note in view_of(store)["notes"])


def test_data_cards_measure_the_candidate_files(store: Path) -> None:
    (fashion,) = [d for d in view_of(store)["datasets"] if d["name"] == "fashion"]
    path = next((store / "candidates" / "fashion").glob("*seed0*.npz"))
    with np.load(path) as arrays:
        matrix = np.unpackbits(arrays["bits"], axis=1, count=int(arrays["shape"][1]))
    first = fashion["candidates"][0]
    assert [c["seed"] for c in fashion["candidates"]] == [0, 1, 2]
    assert first["average"] == pytest.approx(matrix.sum(1).mean(), abs=1e-4)
    assert sum(first["histogram"]) == len(matrix)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", b"\x80\x04\x95."])
def test_a_damaged_candidate_file_costs_its_card_only(store: Path, damage: bytes) -> None:
    for path in (store / "candidates" / "fashion").glob("*.npz"):
        path.write_bytes(damage)
    (fashion,) = [d for d in view_of(store)["datasets"] if d["name"] == "fashion"]
    assert fashion["candidates"] == []


@pytest.mark.parametrize("name", ["a,b+c=d", "two  blanks", ".hidden", "fashion"])
def test_candidate_files_are_found_under_the_name_they_were_written_under(tmp_path: Path, name: str) -> None:
    drawn = replace(glyphs.load(tmp_path, train=20, test=10, classes=10), name=name)
    made = candidates.build(drawn, "uniform", 0.3, 0, tmp_path / "candidates")
    (card,) = candidate_cards(tmp_path, name, {made.sha256})
    assert card["rows"] == 20 and card["average"] == pytest.approx(made.matrix.sum(1).double().mean().item())


# curves -------------------------------------------------------------------------------------------------------------
def test_curves_keep_first_and_last_epoch_and_are_exact_to_a_hundredth() -> None:
    values = 50 + 20 * np.random.default_rng(0).random(500)
    grid = epoch_grid(np.arange(500), 100)
    assert (grid[0], grid[-1], len(grid)) == (0, 499, 100)
    codes, low, high = quantise(thin(values, grid))
    assert np.abs(low + (high - low) * codes / (MISSING - 1) - values[grid]).max() < 0.01


def test_a_curve_of_rare_evaluations_has_no_gaps(tmp_path: Path) -> None:
    evaluated = [2, 5, 6]
    with open(tmp_path / "metrics.jsonl", "w") as handle:
        for epoch in range(7):
            result = {"loss": 1 / (epoch + 1)} | ({"test_accuracy": 10.0 * epoch} if epoch in evaluated else {})
            handle.write(json.dumps({"epoch": epoch, "result": result, "time": {"seconds": 1.0}}) + "\n")
    (view,) = curves([[("pop", "fashion", 0, RunFolder(tmp_path))]])
    found = view["metrics"][0]
    assert found["name"] == "test_accuracy" and found["grids"]["fashion"] == evaluated
    assert MISSING not in np.frombuffer(base64.b64decode(found["values"]), "<u2")


def test_metrics_recorded_now_and_then_are_found_between_the_points_of_the_grid() -> None:
    values = np.full(9, np.nan)
    values[[2, 5, 8]] = [1.0, 2.0, 3.0]
    assert thin(values, np.array([0, 3, 6, 8])).tolist()[1:] == [1.0, 2.0, 3.0]
    assert np.isnan(thin(values, np.array([0, 3, 6, 8]))[0])


def test_values_that_no_curve_can_show_are_missing() -> None:
    for values in ([np.inf, np.nan], [-1e308, 1e308]):
        codes, _, _ = quantise(np.array(values))
        assert (codes == MISSING).all()
    assert quantise(np.array([3.0, 3.0]))[0].tolist() == [0, 0]


def test_a_cut_off_line_of_metrics_does_not_end_the_curve_before_it(store: Path) -> None:
    path = next((store / "runs/quick/fashion/cel").glob("seed0-*/metrics.jsonl"))
    path.write_bytes(path.read_bytes()[:-40])
    metric = view_of(store)["curves"]["metrics"][0]
    assert max(metric["grids"]["fashion"]) == 7


# bad input ----------------------------------------------------------------------------------------------------------
def test_an_empty_results_folder_is_one_sentence(tmp_path: Path, store: Path) -> None:
    with pytest.raises(CandidError, match="There are no runs in"):
        write_report(tmp_path / "nothing", tmp_path / "x.html")
    with pytest.raises(CandidError, match="There are no runs of profile paper in"):
        report(store, "paper")


def test_results_of_another_schema_are_one_sentence(store: Path) -> None:
    def future(document: dict[str, Any]) -> None:
        document["schema"] = 99

    write_store(store, profile="quick", methods=["cc"], datasets=["fashion"], seeds=[0], epochs=4, edit=future)
    with pytest.raises(CandidError, match=r"1 run\(s\) were written with schema 99"):
        report(store)


def test_a_place_that_cannot_be_written_is_one_sentence(store: Path) -> None:
    (store / "file").write_text("")
    with pytest.raises(CandidError, match="cannot be written"):
        write_report(store, store / "file" / "report.html")


HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>\"'`{{SCRIPT}}&lt;\u2028"


def make_hostile(results: Path) -> None:
    """A results folder by somebody who wants the reader's browser: every text field is an attack."""

    def attack(document: dict[str, Any]) -> None:
        document |= {"label": HOSTILE, "method": HOSTILE, "dataset": HOSTILE, "profile": HOSTILE}
        document["environment"] = dict.fromkeys(document["environment"], HOSTILE)
        document["overrides"] = {HOSTILE: HOSTILE, f"train.{HOSTILE}": [HOSTILE]}
        if document["seed"]:
            document |= {"status": "failed", "reason": HOSTILE}

    write_store(results, profile="quick", methods=["cc"], datasets=["fashion"], epochs=3, edit=attack)
    for path in results.glob("runs/*/*/*/*/metrics.jsonl"):
        path.write_text(path.read_text().replace('"loss"', json.dumps(HOSTILE)))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_nothing_from_a_hostile_results_folder_becomes_markup(store: Path) -> None:
    harmless, hostile = Tags(), Tags()
    harmless.feed(report(store).read_text())
    make_hostile(store)
    page = report(store)
    hostile.feed(page.read_text())
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in harmless.found]
    block = re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)
    assert block and not set("<>&\u2028") & set(block[1])
    view = next(v for v in content(page)["views"] if v["profile"] != "quick")
    assert view["failures"][0]["reason"] == HOSTILE.replace("\u2028", " ")


def test_the_page_allows_its_own_script_and_nothing_else(store: Path) -> None:
    policy = next(a["content"] for t, a in _tags(report(store)) if a.get("http-equiv") == "Content-Security-Policy")
    assert policy and policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy
    for tag, attributes in _tags(report(store)):
        assert not {"src", "srcset", "action"} & set(attributes), tag
        assert tag not in ("link", "iframe", "object", "base", "form")
        assert (attributes.get("href") or "#").startswith("#")


def _tags(page: Path) -> list[tuple[str, dict[str, str | None]]]:
    tags = Tags()
    tags.feed(page.read_text())
    return tags.found


def test_fields_of_another_kind_do_not_stop_the_page(store: Path) -> None:
    def odd(document: dict[str, Any]) -> None:
        document |= {"overrides": [1], "environment": "none", "cost": {"seconds_per_epoch": "x"}, "reason": {"a": 1}}
        document["summary"]["accuracy_oracle"] = "high"
        document["config"]["dataset"] = 7

    write_store(store, profile="quick", methods=["cc"], epochs=3, edit=odd)
    shown = {cell["m"] for cell in view_of(store)["cells"]}
    assert "cc" not in shown and shown, "a document that is not one gives no number, and the others stay"
    assert len(list(store.glob("runs/quick/*/cc/*/run.json.damaged"))) == 6


def test_numbers_are_short_and_never_nan() -> None:
    values = {"a": 1 / 3, "b": float("nan"), "c": float("inf"), "d": 2.0, "e": 1.23456e-9}
    assert compact(values) == {"a": 0.33333, "b": None, "c": None, "d": 2, "e": 1.23e-09}
    assert embed("<&>") == '"\\u003c\\u0026\\u003e"'


# cost ---------------------------------------------------------------------------------------------------------------
def test_the_page_is_left_alone_until_something_changes(store: Path) -> None:
    page = report(store)
    written = page.stat().st_mtime_ns
    assert up_to_date(store, page) and report(store).stat().st_mtime_ns == written
    assert not up_to_date(store, page, Scope("quick"))
    metrics = next(store.glob("runs/*/*/*/*/metrics.jsonl"))
    os.utime(metrics, (1, 1))
    assert not up_to_date(store, page)
    report(store)
    page.write_bytes(page.read_bytes()[:-100])
    assert not up_to_date(store, page)


def test_the_same_results_give_the_same_page(store: Path) -> None:
    """Byte for byte, in processes that order sets differently; but for the mark, which follows every edit of the code."""
    pages = []
    for seed in ("0", "1"):
        out = store / f"{seed}.html"
        command = [sys.executable, "-m", "benchmark", "report", "--results", str(store), "--out", str(out)]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        pages.append(MARK.sub(b"", out.read_bytes()))
    assert pages[0] == pages[1]


def test_a_run_that_is_going_on_is_told_from_one_that_was_cut_off(store: Path) -> None:
    def running(document: dict[str, Any]) -> None:
        document["status"] = "running"

    write_store(store, profile="quick", methods=["cc"], datasets=["fashion"], seeds=[0], epochs=4, edit=running)
    assert view_of(store)["states"]["interrupted"] == 1
    folder = next((store / "runs/quick/fashion/cc").iterdir())
    before = fingerprint(store)
    holder = (
        "import sys; from pathlib import Path; from benchmark.files import Lock;"
        "Lock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(folder / "lock")]
    with subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout and other.stdin
        other.stdout.readline()
        assert fingerprint(store) != before
        assert view_of(store)["states"]["running"] == 1
        other.stdin.close()
    assert view_of(store)["states"]["interrupted"] == 1


def test_an_unchanged_page_needs_neither_pandas_nor_scipy_and_a_new_one_no_torch(store: Path) -> None:
    code = (
        "import sys; from benchmark.cli.main import main; code = main(sys.argv[1:]);"
        "print(code, [m for m in ('torch', 'pandas', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    command = [sys.executable, "-c", code, "report", "--results", str(store)]
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert first.startswith("Written: ") and "0 [" in first and "torch" not in first and "matplotlib" not in first
    assert again.startswith("Unchanged: ") and again.rstrip().endswith("0 []")


def test_a_store_is_made_the_same_way_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_store(tmp_path / name, profile="quick", methods=["cel"], datasets=["fashion"], seeds=[0], epochs=3)
    files = [sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("a", "b")]
    assert len(files[0]) == 3
    for a, b in zip(*files, strict=True):
        assert a.relative_to(tmp_path / "a") == b.relative_to(tmp_path / "b") and a.read_bytes() == b.read_bytes()


# a real browser -----------------------------------------------------------------------------------------------------
@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Browser]:
    command = chromium.find()
    if command is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium); the report was not opened")
    with chromium.Browser(command, tmp_path / "browser") as opened:
        opened.size(1280, 900)
        yield opened


def wait(browser: chromium.Browser, expression: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not browser.run(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def choose(browser: chromium.Browser, selector: str, value: str) -> None:
    """An entry of a list, as a person would choose it."""
    element = f"document.querySelector('{selector}')"
    browser.run(f"{element}.value = '{value}'; {element}.dispatchEvent(new Event('change'))")


FIRST_ROWS = "[...document.querySelectorAll('#results tbody:first-of-type tr th')].map(th => th.textContent)"
HEAD = "document.querySelectorAll('#results thead button')"


@pytest.mark.browser
def test_the_page_works_in_a_browser_by_pointer_and_keyboard(paper: Path, browser: chromium.Browser) -> None:
    page = report(paper)
    browser.open(page)
    view = content(page)["views"][0]
    assert browser.run("document.querySelectorAll('section').length") >= 9
    # Sorting: by CUB200, down and up; controls stay apart.
    means = {c["m"]: c["mean"] for c in view["cells"] if c["d"] == "cub200"}
    main = [m for m in view["methods"] if m["kind"] in ("PLL", "IDPLL")]
    wanted = [m["title"] for m in sorted(main, key=lambda m: -means[m["name"]])]
    browser.run(f"{HEAD}[7].click()")
    assert [name.removeprefix("★ ") for name in browser.run(FIRST_ROWS)] == wanted
    browser.run(f"{HEAD}[7].focus()")
    browser.press("Enter", 13)
    assert [name.removeprefix("★ ") for name in browser.run(FIRST_ROWS)] == wanted[::-1]
    assert browser.run("document.querySelector('#results th[aria-sort=ascending]').textContent") == "CUB200"
    # A number in focus tells its seeds; Enter opens its command, Escape closes it.
    browser.press("Tab", 9)
    wait(browser, "document.activeElement.closest('td.cell') !== null")
    assert "seed 0" in browser.run("document.getElementById('tip').textContent")
    browser.press("Enter", 13)
    told = browser.run("document.getElementById('detail').textContent")
    assert "./reproduce.sh run --profile paper" in told and "train.epochs=500" in told and "weights " in told
    browser.press("Escape", 27)
    wait(browser, "!document.getElementById('detail').open")
    # Method toggles change the image; the arrow keys read values out.
    pixels = "document.querySelector('canvas').toDataURL()"
    toggle = "document.querySelector('.chip[data-method=cel]')"
    before = browser.run(pixels)
    browser.run(f"{toggle}.focus()")
    browser.press(" ", 32)
    assert browser.run(f"{toggle}.getAttribute('aria-pressed')") == "false"
    assert browser.run(pixels) != before
    browser.run(f"{toggle}.click()")
    assert browser.run(pixels) == before
    browser.run("document.querySelector('canvas').focus()")
    browser.press("End", 35)
    assert "Epoch 500: CEL" in browser.run("document.getElementById('live').textContent")
    # The test of the matrix can be chosen, and light or dark.
    counts = "document.querySelector('.matrix').textContent"
    first = browser.run(counts)
    browser.run(
        "{const s = document.querySelector('#matrix select'); s.value = 'welch'; s.dispatchEvent(new Event('change'))}"
    )
    assert browser.run(counts) != first
    paper_colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(paper_colour)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(paper_colour) != light
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()]


@pytest.mark.browser
def test_hovering_a_curve_shows_values(store: Path, browser: chromium.Browser) -> None:
    browser.open(report(store))
    box = "JSON.stringify(document.querySelector('canvas').getBoundingClientRect())"
    browser.run("document.querySelector('canvas').scrollIntoView({block: 'center', behavior: 'instant'})")
    place = json.loads(browser.run(box))
    browser.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    wait(browser, "!document.querySelector('.readout').hidden")
    shown = browser.run("document.querySelector('.readout').textContent")
    assert re.match(r"epoch [3-6]", shown) and "CEL" in shown
    assert browser.complaints == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 390])
def test_a_phone_shows_the_page_without_scrolling_sideways(paper: Path, browser: chromium.Browser, width: int) -> None:
    browser.size(width, 800, phone=True, dark=True)
    browser.open(report(paper))
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    assert browser.complaints == []


@pytest.mark.browser
def test_a_table_that_goes_on_says_so_above_it_and_keeps_its_first_column(
    paper: Path, browser: chromium.Browser
) -> None:
    browser.size(390, 800, phone=True)
    browser.open(report(paper))
    wait(browser, "!document.querySelector('#results .more').hidden")
    top = "document.querySelector('#results {}').getBoundingClientRect().top"
    assert browser.run(top.format(".more")) < browser.run(top.format(".scroll"))
    left = "document.querySelector('#results tbody th').getBoundingClientRect().left"
    before = browser.run(left)
    browser.run("document.querySelector('#results .scroll').scrollLeft = 200")
    assert browser.run("document.querySelector('#results .scroll').scrollLeft") == 200
    assert browser.run(left) == before


@pytest.mark.browser
def test_the_sign_of_a_number_that_opens_takes_no_line_of_its_own(paper: Path, browser: chromium.Browser) -> None:
    browser.open(report(paper))
    heights = "document.querySelector('#results td.cell button').clientHeight, document.querySelector('#results .sub').offsetHeight"
    cell, line = browser.run(f"[{heights}]")
    assert cell < 3.4 * line, "two lines and the padding"


@pytest.mark.browser
def test_extensions_stand_below_the_references_under_a_line_of_their_own(
    tmp_path: Path, browser: chromium.Browser
) -> None:
    methods = ["cel", "proden", "average", "solar"]
    write_store(tmp_path, profile="quick", datasets=["fashion"], methods=methods, candidates=False)
    browser.open(report(tmp_path))
    rows = browser.run("[...document.querySelectorAll('#results tbody tr')].map((row) => row.innerText)")
    where = {name: next(i for i, row in enumerate(rows) if name in row) for name in ("PRODEN", "Average", "SoLar")}
    line = next(i for i, row in enumerate(rows) if "Extensions" in row)
    assert where["PRODEN"] < where["Average"] < line < where["SoLar"]


@pytest.mark.browser
def test_the_best_five_are_those_of_the_data_set_unless_somebody_chose(paper: Path, browser: chromium.Browser) -> None:
    page = report(paper)
    browser.open(page)
    view = content(page)["views"][0]

    def best(dataset: str) -> set[str]:
        main = {m["name"] for m in view["methods"] if m["kind"] in ("PLL", "IDPLL")}
        cells = sorted((c for c in view["cells"] if c["d"] == dataset and c["m"] in main), key=lambda c: -c["mean"])
        return {"cel", *(c["m"] for c in cells[:5])}

    shown = "[...document.querySelectorAll('.chip[aria-pressed=true]')].map(chip => chip.dataset.method)"
    first, other = view["datasets"][0]["name"], view["datasets"][-1]["name"]
    assert set(browser.run(shown)) == best(first) != best(other)
    choose(browser, "#curves select", other)
    assert set(browser.run(shown)) == best(other)
    browser.run("document.querySelector('.chip[data-method=cel]').click()")
    choose(browser, "#curves select", first)
    assert set(browser.run(shown)) == best(other) - {"cel"}


@pytest.mark.browser
def test_a_hostile_results_folder_does_nothing_in_a_browser(store: Path, browser: chromium.Browser) -> None:
    make_hostile(store)
    page = report(store)
    browser.open(page)
    for k in range(browser.run("document.getElementById('view').options.length")):
        choose(browser, "#view", str(k))
        click = "b => { b.click(); document.getElementById('detail').close() }"
        browser.run(f"document.querySelectorAll('#page button').forEach({click})")
    assert browser.run("document.querySelectorAll('img, #page script').length") == 0
    assert browser.run("window.broken === undefined")
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()]


@pytest.mark.browser
def test_two_profiles_can_be_switched(store: Path, browser: chromium.Browser) -> None:
    write_store(store, methods=["cel", "dirk"], datasets=["cub200"], epochs=5)
    browser.open(report(store))
    assert browser.run("document.title") == "Candid report: paper"
    choose(browser, "#view", "1")
    assert browser.run("document.title") == "Candid report: quick"
    assert browser.complaints == []


def test_the_page_has_the_error_of_the_test_set(store: Path) -> None:
    assert any("standard error" in note for note in view_of(store)["notes"]) == any(
        json.loads(path.read_text()).get("test_rows") for path in store.rglob("run.json")
    )
    for path in store.rglob("run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"test_rows": 1000}))
    assert any("(1,000 rows)" in note for note in view_of(store)["notes"])


def test_the_page_says_what_a_tie_is(store: Path) -> None:
    evidence = view_of(store)["evidence"]
    assert evidence.startswith(("A tie is not equality.", "Smallest difference")) and "nan" not in evidence
