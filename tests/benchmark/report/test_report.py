"""The report page: its numbers are those of the tables, nothing from results becomes markup, and it works in a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark.cli.main import main
from benchmark.config.resolution import Override
from benchmark.errors import CandidError
from benchmark.report.page import POINTS, band, collect, write_report
from benchmark.store import Store
from tests.conftest import ROOT, TinyBenchmark, command_of
from tests.support import chromium
from tests.support.fake_store import spoil, write_store

FOUR = ("cel", "dirk", "proden", "average")


class Page(HTMLParser):
    """Tags, texts of table rows by section heading, and the data block of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.rows: dict[str, list[list[str]]] = {}
        self.text = path.read_text()
        self._open, self._heading = "", ""
        self.feed(self.text)
        block = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.text, re.S)
        assert block
        self.block = block[1]
        self.data = json.loads(self.block)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = "" if tag in ("style", "script") else self._open
        if tag == "h2":
            self._open, self._heading = "heading", ""
        elif tag == "tr":
            self.rows.setdefault(self._heading, []).append([])
        elif tag in ("td", "th"):
            self._open = "cell"
            self.rows[self._heading][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("h2", "td", "th"):
            self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "heading":
            self._heading += data
        elif self._open == "cell":
            self.rows[self._heading][-1][-1] += data

    def dialog(self, title: str) -> dict[str, Any]:
        return next(cell for cell in self.data["cells"] if cell["title"] == title)


def report(results: Path, profile: str | None = None) -> Page:
    return Page(write_report(results, results / "report.html", profile=profile))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path, profile="quick", methods=FOUR, epochs=8)
    return tmp_path


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole paper profile, controls and references too, with a few runs that did not end well."""
    folder = tmp_path_factory.mktemp("paper")
    write_store(folder, edit=spoil, epochs=50)
    write_store(folder, methods=("proden-2v", "dirk-plain", "average", "supervised"), epochs=50)
    return folder


@pytest.fixture(scope="module")
def page(paper: Path) -> Page:
    return report(paper)


# content ------------------------------------------------------------------------------------------------------------
def test_a_real_run_is_on_the_page_with_its_hashes_and_settings(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    assert main(bench.arguments("run", "--methods", "proden", "--quiet")[3:]) == 0
    assert main(bench.arguments("report")[3:]) == 0
    page = Page(bench.results / "report.html")
    cell = page.dialog("PRODEN on Digits")
    for document, (seed, accuracy, candidates, weights) in zip(bench.documents(), cell["seeds"], strict=True):
        assert (seed, candidates) == (document["seed"], document["candidates_sha256"])
        assert (float(accuracy), weights) == (round(document["summary"]["accuracy"], 2), document["weights_sha256"])
    assert any("train.epochs=3" in line for line in dict(cell["settings"])["profile tiny"])
    (chart,) = page.data["charts"]
    assert chart["metrics"][0] == "Test accuracy (%)" and len(chart["series"][0][3]) == 3


def test_the_accuracy_table_is_the_one_that_table2_prints(paper: Path, page: Page, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    words = ["--profile", "paper", "--results", str(paper), "--methods", "all", "--out", str(out)]
    assert main(["table2", "--no-run", *words]) == 3
    printed = json.loads(out.read_text())
    shown = page.rows["Accuracy"]
    assert shown[0] == printed["columns"]
    rows = [[cell["text"] for cell in row] for row in printed["rows"]]
    assert shown[1:] == [row for row in rows if set(row[2:]) != {"–"}]  # extensions, which have no runs here


def test_a_cell_that_lacks_seeds_says_so_and_its_run_is_listed_with_the_reason(page: Page) -> None:
    (row,) = [row for row in page.rows["Accuracy"] if row[1] == "IDGP"]
    assert row[-1].endswith("(2/3)")
    cell = page.dialog("IDGP on CUB200")
    assert cell["seeds"][2][1] == "–" and "seed 2 diverged: loss is nan at step 20412" in cell["problems"][0]
    (listed,) = [row for row in page.rows["Unfinished runs"] if row[0] == "idgp"]
    assert listed[1:4] == ["cub200", "2", "diverged"] and "step 20412" in listed[5]


def test_comparison_ranks_and_cost_are_there(page: Page, tmp_path: Path) -> None:
    assert {"Total", "Total, Holm"} <= {row[0] for row in page.rows["Win/tie/loss"]}
    assert page.rows["Cost"][1][0] == "CEL" and re.match(r"\d+\.\d\d s, 5,000 MB", page.rows["Cost"][1][1])
    assert "at least 5 datasets" in page.text and "img" not in {tag for tag, _ in page.tags}
    write_store(tmp_path, methods=["cel", "proden"], epochs=2)
    (image,) = [attributes for tag, attributes in report(tmp_path).tags if tag == "img"]
    assert "CEL" in (image["alt"] or "") and (image["src"] or "").startswith("data:image/svg+xml;base64,")


def test_the_command_of_a_cell_is_understood_by_the_command_line(store: Path) -> None:
    write_store(store, profile="quick", methods=["cel"], datasets=["fashion"], epochs=4, variant={"beta": 0.5})
    longer = Override("train", "epochs", "30")
    write_store(store, profile="quick", methods=["cc"], datasets=["fashion"], epochs=4, overrides=[longer])
    page = report(store)
    assert [row[0] for row in page.rows["Changed settings"][1:]] == ["CC[train.epochs=30]", "CEL[beta=0.5]"]
    plain, variant, other = (
        page.dialog(f"{label} on Fashion")["command"] for label in ("CEL", "CEL[beta=0.5]", "CC[train.epochs=30]")
    )
    assert plain.startswith("./reproduce.sh run --profile quick --methods cel --datasets fashion --seeds 0,1,2 ")
    assert "--set method.beta=0.5" in variant and "--set train.epochs=30" in other
    for command in (plain, variant, other):
        named, rest = command_of(shlex.split(command)[1:])
        assert named.name == "run" and named.make_context("run", rest)


def test_several_profiles_share_a_page_and_one_can_be_chosen(store: Path) -> None:
    write_store(store, methods=["cel"], datasets=["cub200"], epochs=5)
    assert [view["name"] for view in collect(store)[0]] == ["paper", "quick"]
    assert [view["name"] for view in collect(store, "paper")[0]] == ["paper"]


def test_another_reference_is_marked_and_compared(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "--results", str(store), "--reference"]
    assert main([*words, "PRODEN"]) == 0
    page = (store / "report.html").read_text()
    assert "★ PRODEN" in page and "★ CEL" not in page
    assert main([*words, "nope"]) == 2 and "--reference: no run of 'nope'" in capsys.readouterr().err


def test_methods_and_profiles_that_are_not_defined_here_are_shown(store: Path) -> None:
    def rename(document: dict[str, Any]) -> None:
        document["method"] = document["label"] = "gone"
        document["profile"] = "theirs"

    write_store(store, profile="quick", methods=["cc"], epochs=4, edit=rename)
    view = next(view for view in collect(store)[0] if view["name"] == "theirs")
    assert any("theirs is not defined here" in note for note in view["notes"])
    page = report(store, "theirs")
    assert page.rows["Accuracy"][1][1] == "gone†"
    assert "--profile theirs.toml" in page.data["cells"][0]["command"]
    assert "--plugin gone.py" in page.data["cells"][0]["command"]


# curves -------------------------------------------------------------------------------------------------------------
def test_a_curve_spans_the_seeds_and_keeps_first_and_last_of_the_epochs_with_a_value() -> None:
    values = np.linspace(0, 50, 500)
    points = band([values, values + 2, values[:300] + 4])
    assert len(points) == POINTS and points[0] == [1, 2.0, 0.0, 4.0] and points[-1] == [500, 51.0, 50.0, 52.0]
    nan = float("nan")
    assert band([np.array([nan, 1.0, nan, np.inf, 3.0])]) == [[2, 1.0, 1.0, 1.0], [5, 3.0, 3.0, 3.0]]
    assert band([np.array([nan, 1e308]), np.array([nan])]) == [] == band([np.array([])])


def test_cut_off_lines_do_no_harm(store: Path) -> None:
    for path in store.glob("runs/fashion/*/*/metrics.jsonl"):
        path.write_text(path.read_text()[:-40])
    (view,) = collect(store)[0]
    last = {tuple(series[:2]): series[3][-1][0] for series in view["chart"]["series"]}
    assert last[0, 2] == 7 and last[0, 0] == 8


# bad input ----------------------------------------------------------------------------------------------------------
def test_bad_input_is_one_sentence(tmp_path: Path, store: Path) -> None:
    with pytest.raises(CandidError, match="no results folder"):
        write_report(tmp_path / "nothing", tmp_path / "x.html")
    with pytest.raises(CandidError, match="no runs of profile paper"):
        report(store, "paper")
    with pytest.raises(CandidError, match="no run of 'nobody'"):
        write_report(store, tmp_path / "x.html", methods=("nobody",))
    (store / "file").write_text("")
    with pytest.raises(CandidError, match="cannot be written"):
        write_report(store, store / "file" / "report.html")


def test_results_of_another_schema_are_left_out(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    future: dict[str, Any] = {"profile": "quick", "methods": ["cc"], "datasets": ["fashion"], "seeds": [0], "epochs": 4}
    runs = len(Store(store).runs)
    write_store(store, **future, edit=lambda document: document.update(schema=99))
    assert len(Store(store).runs) == runs and "schema" in capfd.readouterr().err


HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=1'>\"'`{{ nonce }}&lt;\u2028"


def make_hostile(results: Path) -> None:
    """Write runs in which every text is an attack on the reader's browser."""

    def attack(document: dict[str, Any]) -> None:
        document |= {"label": HOSTILE, "method": HOSTILE, "dataset": HOSTILE, "profile": HOSTILE}
        document["environment"] = dict.fromkeys(document["environment"], HOSTILE)
        document["overrides"] = {HOSTILE: HOSTILE, f"train.{HOSTILE}": [HOSTILE]}
        document["provenance"] = dict.fromkeys(document["provenance"], HOSTILE)
        document["weights_sha256"] = HOSTILE
        if document["seed"]:
            document |= {"status": "failed", "reason": HOSTILE}

    write_store(results, profile="quick", methods=["cc"], datasets=["fashion"], epochs=3, edit=attack)
    for path in results.glob("runs/*/*/*/metrics.jsonl"):
        path.write_text(path.read_text().replace('"loss"', json.dumps(HOSTILE)))


def test_nothing_from_a_hostile_results_folder_becomes_markup(store: Path) -> None:
    harmless = report(store)
    make_hostile(store)
    page = report(store)
    assert not set("<>&\u2028") & set(page.block)
    for tag in ("script", "style", "img", "meta", "dialog"):
        expected = [attributes for name, attributes in harmless.tags if name == tag]
        assert len([name for name, _ in page.tags if name == tag]) == len(expected)
    shown = HOSTILE.replace("\u2028", " ")
    assert any(shown in row for row in page.rows["Unfinished runs"])
    assert any(shown in cell["title"] for cell in page.data["cells"])


def test_the_page_allows_its_own_script_and_style_and_loads_nothing(page: Page) -> None:
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy") or ""
    nonces = {a["nonce"] for tag, a in page.tags if tag in ("script", "style") and a.get("type") is None}
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert len(nonces) == 1 and f"'nonce-{nonces.pop()}'" in policy
    for tag, attributes in page.tags:
        assert not {"srcset", "action", "style"} & set(attributes) and tag not in ("link", "iframe", "object", "base")
        assert (attributes.get("src") or "data:").startswith("data:")
        assert (attributes.get("href") or "#").startswith("#")


# program ------------------------------------------------------------------------------------------------------------
def test_the_same_results_give_the_same_page_without_torch(store: Path) -> None:
    """Byte for byte, in processes that order sets differently."""
    code = "import sys; from benchmark.cli.main import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    pages = []
    for seed in ("0", "1"):
        out = store / f"{seed}.html"
        command = [sys.executable, "-c", code, "report", "--results", str(store), "--out", str(out)]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True)
        pages.append(out.read_bytes())
    assert pages[0] == pages[1]


# a real browser -----------------------------------------------------------------------------------------------------
@pytest.fixture
def browser(tmp_path: Path) -> Iterator[chromium.Browser]:
    command = chromium.find()
    if command is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium); the report was not opened")
    with chromium.Browser(command, tmp_path / "browser") as opened:
        opened.size(1280, 900)
        yield opened
        assert opened.complaints == []


def wait(browser: chromium.Browser, expression: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not browser.run(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def choose(browser: chromium.Browser, selector: str, value: str) -> None:
    """Choose an entry of a list as a person would."""
    element = f"document.querySelector('{selector}')"
    browser.run(f"{element}.value = '{value}'; {element}.dispatchEvent(new Event('change'))")


TITLES = "[...document.querySelectorAll('.plot .series text')].map((text) => text.textContent)"


@pytest.mark.browser
def test_the_page_works_in_a_browser(paper: Path, browser: chromium.Browser) -> None:
    path = write_report(paper, paper / "report.html")
    browser.open(path)
    # Every number opens a dialog with its seeds and its command.
    browser.run("document.querySelector('[data-cell]').click()")
    told = browser.run("document.getElementById('cell').innerText")
    assert "CEL on CIFAR-100" in told and "--profile paper" in told and "interval" in told
    assert browser.run("document.querySelector('dialog details').textContent.includes('train.epochs=500')")
    browser.run("document.querySelector('dialog button').click()")
    wait(browser, "!document.getElementById('cell').open")
    # Hovering shows values; references stay whatever is chosen; the best five follow the dataset.
    browser.run("document.querySelector('.plot').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = json.loads(browser.run("JSON.stringify(document.querySelector('.plot > svg').getBoundingClientRect())"))
    browser.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wait(browser, "!document.querySelector('.readout').hidden")
    assert re.match(
        r"epoch 2\d\n[\d.]+ +\([\d.]+–[\d.]+\)", browser.run("document.querySelector('.readout').textContent")
    )
    first = set(browser.run(TITLES))
    assert {"CEL", "Average", "Supervised"} < first and len(first) in (7, 8)
    choose(browser, ".curves select", "5")
    assert set(browser.run(TITLES)) != first
    browser.run("document.querySelector('.curves [name=none]').click()")
    assert set(browser.run(TITLES)) == {"Average", "Supervised"}
    browser.run("document.querySelector('.curves input').click()")
    assert set(browser.run(TITLES)) == {"Average", "Supervised", "CEL"}
    background = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(background)
    browser.run("document.getElementById('theme').click()")
    assert browser.run(background) != light
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.resolve().as_uri()]


@pytest.mark.browser
def test_a_phone_shows_the_page_without_scrolling_sideways(paper: Path, browser: chromium.Browser) -> None:
    browser.size(390, 800, phone=True, dark=True)
    browser.open(write_report(paper, paper / "report.html"))
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert browser.run("document.documentElement.dataset.theme") == "dark"
    left = "document.querySelectorAll('tbody .pinned')[0].getBoundingClientRect().left"
    before = browser.run(left)
    browser.run("document.querySelector('.scroll').scrollLeft = 200")
    assert browser.run("document.querySelector('.scroll').scrollLeft") == 200 and browser.run(left) == before


@pytest.mark.browser
def test_two_profiles_can_be_switched_and_a_hostile_one_does_nothing(store: Path, browser: chromium.Browser) -> None:
    make_hostile(store)
    path = write_report(store, store / "report.html")
    browser.open(path)
    shown = "[...document.querySelectorAll('article')].map((article) => article.checkVisibility())"
    for number, visible in (("1", [False, True]), ("0", [True, False])):
        choose(browser, "#profile", number)
        assert browser.run(shown) == visible
        click = "(button) => { button.click(); document.getElementById('cell').close(); }"
        browser.run(f"document.querySelectorAll('article:not([hidden]) button').forEach({click})")
    assert browser.run("document.querySelectorAll('main img[src=x], main script').length") == 0
    assert browser.run("window.broken === undefined")
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.resolve().as_uri()]
