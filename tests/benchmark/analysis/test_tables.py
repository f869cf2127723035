"""Claims on the tables: nothing incomplete looks complete, and every format says the same."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmark import store
from benchmark.analysis import published
from benchmark.analysis import table as rendering
from benchmark.analysis.comparisons import compare_pairs, device_notes, mixture_notes, rank_analysis
from benchmark.analysis.contents import TEST_NAMES, Contents, DatasetInfo, MethodInfo, contents_of, devices_in_words
from benchmark.analysis.table import Table, row, to_csv, to_json, to_latex, to_markdown, to_text
from benchmark.config.selection import select
from benchmark.errors import MissingRuns, UsageError
from benchmark.exhibits import comparisons
from benchmark.exhibits.parts.cells import ranks_of
from benchmark.exhibits.table1 import table1
from benchmark.exhibits.table2 import table2
from benchmark.exhibits.table3 import Table3, table3, table3_from_paper
from benchmark.exhibits.table4 import table4
from benchmark.files import atomic_write
from tests.conftest import ROOT

METHODS = (
    MethodInfo("cel", "CEL", "IDPLL"),
    MethodInfo("dirk", "DIRK", "IDPLL"),
    MethodInfo("proden", "PRODEN", "PLL"),
    MethodInfo("average", "Average", "control"),
)
DATASETS = (
    DatasetInfo("cifar100", "CIFAR-100", "Common"),
    DatasetInfo("cub200", "CUB200", "Fine-Grained"),
)
MEANS = {"cel": 75.5, "dirk": 74.4, "proden": 70.5, "average": 90.0, "gone": 99.0}


def plan(profile: str = "quick", **options: object) -> Contents:
    return Contents(profile, METHODS, DATASETS, (0, 1, 2), "cpu", **options)  # type: ignore[arg-type]


def make_runs(profile: str = "quick", methods: tuple[str, ...] = ("cel", "dirk", "proden", "average")) -> pd.DataFrame:
    rows = []
    for m in methods:
        for d in ("cifar100", "cub200"):
            for seed in (0, 1, 2):
                # The wobble differs between methods, so no difference is constant.
                accuracy = MEANS[m] + 0.1 * seed + 0.01 * ((seed * len(m)) % 3)
                rows.append(
                    {"profile": profile, "dataset": d, "method": m, "label": m, "seed": seed, "identity": f"{m}-{d}-{seed}", "status": "done",
                         "reason": "", "epochs": 5, "epochs_done": 5, "accuracy": accuracy, "accuracy_last10": accuracy - 1,
                         "accuracy_oracle": accuracy + 1, "accuracy_covering": accuracy, "accuracy_approximated": accuracy,
                         "commit": "abc", "code_version": "1", "schema": 1, "overrides": "{}"}
                )  # fmt: skip
    return pd.DataFrame(rows)


def spoil(runs: pd.DataFrame, method: str, dataset: str, seed: int, status: str, reason: str = "") -> pd.DataFrame:
    hit = (runs.method == method) & (runs.dataset == dataset) & (runs.seed == seed)
    assert hit.sum() == 1
    runs = runs.copy()
    runs.loc[hit, "status"], runs.loc[hit, "reason"], runs.loc[hit, "accuracy"] = status, reason, math.nan
    return runs


def csv_lines(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def cell(table: Table, title: str, column: str) -> rendering.Cell:
    line = next(r for r in table.rows if any(c.text.endswith(title) for c in r.cells[:2]))
    return line.cells[table.columns.index(column)]


# Table 2 ------------------------------------------------------------------------------------------------------------
def test_best_is_bold_and_second_underlined_among_main_methods_only() -> None:
    table = table2(make_runs(), plan())
    assert table.complete
    assert cell(table, "CEL", "CUB200").bold
    assert cell(table, "DIRK", "CUB200").underline
    control = cell(table, "Average", "CUB200")
    assert not control.bold and not control.underline
    assert table.rows[-1].cells[1].text == "Average" and table.rows[-1].rule


def test_extensions_stand_below_and_are_ranked_only_where_they_are_named() -> None:
    runs, usual = make_runs(methods=("cel", "dirk", "proden", "average", "gone")), plan()
    contents = replace(usual, methods=(*METHODS, MethodInfo("gone", "New", "PLL", apart=True)))
    named = replace(contents, methods=(*METHODS, MethodInfo("gone", "New", "PLL")))
    apart, ranked = table2(runs, contents), table2(runs, named)
    assert apart.rows[-1].cells[1].text == "New" and apart.rows[-1].rule
    assert cell(apart, "CEL", "CUB200").bold and not cell(apart, "New", "CUB200").bold
    assert any("1 extension" in note for note in apart.notes)
    assert cell(ranked, "New", "CUB200").bold and not any("extension" in note for note in ranked.notes)
    assert "New" not in table3(runs, contents).columns and "New" in table3(runs, named).columns
    assert "gone" not in rank_analysis(runs, contents).names


def test_a_cell_with_two_of_three_seeds_says_so_and_is_not_ranked() -> None:
    table = table2(spoil(make_runs(), "cel", "cub200", 1, "diverged", "loss is nan at step 7"), plan())
    assert not table.complete
    best = cell(table, "CEL", "CUB200")
    assert best.text.endswith("(2/3)") and not best.bold
    assert cell(table, "DIRK", "CUB200").bold
    assert any("CEL on CUB200: seed 1 diverged: loss is nan at step 7" in note for note in table.problems)


def test_a_lone_seed_no_runs_and_equal_means() -> None:
    runs, one = make_runs(), replace(plan(), seeds=(0,))
    assert cell(table2(runs, one), "CEL", "CUB200").text == "75.50±–"
    pairs = pairs_table(runs, one)
    assert all(math.isnan(r["ci_low"]) and math.isnan(r["bootstrap_low"]) and r["p_better"] == 1 for r in pairs.data)
    assert "one seed" in " ".join(pairs.notes)
    empty = table2(runs.iloc[:0], plan())
    assert not empty.complete and {c.text for r in empty.rows for c in r.cells[2:]} == {"–"}
    assert ranks_of({"a": 1.0, "b": 2.0, "c": 2.0, "d": 0.5}) == {"b": 1, "c": 1, "a": 2} and ranks_of({"a": 1.0}) == {}


def test_runs_of_another_profile_or_label_do_not_count() -> None:
    runs = make_runs()
    other = runs.assign(profile="paper", accuracy=1.0)
    ablated = runs[runs.method == "cel"].assign(label="cel[beta=0]", accuracy=2.0)
    alone, mixed = table2(runs, plan()), table2(pd.concat([runs, ablated, other]), plan())
    assert mixed.rows == alone.rows


def test_the_paper_profile_shows_the_published_number_and_flags_it_outside_our_interval() -> None:
    table = table2(make_runs("paper"), plan("paper"))
    below = table.rows[[r.cells[1].text for r in table.rows].index("★ CEL") + 1]
    assert below.cells[2].text.startswith("75.51±0.28 (") and "‡" not in below.cells[2].text
    assert below.cells[3].text == "68.60±0.10 (+7.00‡)"
    record = next(r for r in table.data if (r["method"], r["dataset"]) == ("cel", "cub200"))
    assert record["published_outside"] is True and record["values"][2] == pytest.approx(75.70)
    assert "published" not in to_text(table2(make_runs(), plan()))


def test_mixed_code_is_announced() -> None:
    runs = make_runs()
    runs.loc[0, "commit"] = "def"
    runs.loc[1, "code_version"] = "2"
    notes = " ".join(table2(runs, plan()).notes)
    assert "2 commits are mixed" in notes and "2 code versions are mixed" in notes
    assert "mixed" not in " ".join(table2(make_runs(), plan()).notes)
    twice = pd.concat([make_runs(), make_runs().iloc[[0]].assign(identity="other")])
    assert any("several finished runs" in note for note in table2(twice, plan()).notes)
    lengths = make_runs().assign(epochs=[5, 6] * 12)
    assert any("2 numbers of epochs" in note for note in mixture_notes(lengths))
    lengths["epochs"] = lengths["dataset"].map({"cifar100": 5, "cub200": 6})  # a set may be trained for longer
    assert not mixture_notes(lengths)


def test_a_method_that_is_no_longer_registered_is_shown_and_marked() -> None:
    runs = make_runs(methods=("cel", "dirk", "proden", "average", "gone"))
    table = table2(runs, plan())
    assert table.rows[-1].cells[1].text == "gone†" and not table.rows[-1].cells[2].bold
    assert any("not registered here (gone)" in n for n in table.notes)
    known = plan(registered=frozenset({"gone"}))
    assert "gone" not in to_text(table2(runs, known))


# Table 3 ------------------------------------------------------------------------------------------------------------
def test_win_tie_loss_counts_by_group_and_leaves_controls_out() -> None:
    table = table3(make_runs(), plan())
    assert table.columns == ("", "DIRK", "PRODEN", "Total")
    lines = {r.cells[0].text: [c.text for c in r.cells[1:]] for r in table.rows}
    assert lines["Common"] == ["1/0/0", "1/0/0", "2/0/0"]
    assert lines["Total"] == ["2/0/0", "2/0/0", "4/0/0"]
    assert table.complete and table.summary["family"] == 4
    assert table3(make_runs(), plan(reference="proden")).rows[-3].cells[-1].text == "0/0/4"


def test_a_missing_comparison_is_counted_as_missing_and_not_as_a_tie() -> None:
    runs = make_runs()
    table = table3(runs[~((runs.method == "dirk") & (runs.dataset == "cub200") & (runs.seed > 0))], plan())
    lines = {r.cells[0].text: [c.text for c in r.cells[1:]] for r in table.rows}
    assert lines["Fine-Grained"] == ["–", "1/0/0", "1/0/0 ?1"]
    assert lines["Total"] == ["1/0/0 ?1", "2/0/0", "3/0/0 ?1"]
    assert not table.complete and table.summary["family"] == 3 and table.summary["missing"] == 1
    assert any("not ties" in n for n in table.notes)
    short = table3(spoil(make_runs(), "dirk", "cub200", 2, "failed"), plan())
    assert not short.complete and any("fewer than 3 seeds" in n and "DIRK on CUB200" in n for n in short.notes)
    many = tuple(replace(DATASETS[0], name=f"set{k}", title=f"Set {k}") for k in range(9))
    note = next(n for n in table3(make_runs(), replace(plan(), datasets=many)).notes if "not ties" in n)
    assert "DIRK on Set 4 and 13 more" in note and "Set 5" not in note


@pytest.mark.parametrize("test", ["paired", "student", "welch", "wilcoxon"])
def test_every_test_states_its_limits(test: str) -> None:
    table = table3(make_runs(), plan(), test=test)
    assert TEST_NAMES[test] in table.caption
    assert ("nothing can be significant" in table.notes[0]) == (test == "wilcoxon")


def test_copied_runs_are_pointed_out() -> None:
    runs = make_runs()
    twin = runs[runs.method == "cel"].assign(method="dirk", label="dirk")
    table = table3(pd.concat([runs[runs.method != "dirk"], twin]), plan())
    assert any("copies of each other" in n for n in table.notes)


def test_a_profile_beside_the_paper_says_how_it_differs_and_how_far_the_order_is_the_papers() -> None:
    methods = tuple(MethodInfo(t.lower(), t, "PLL") for t in ("CEL", "DIRK", "PRODEN", "PiCO", "POP"))
    paper = published.accuracies()
    parts = []
    for m in methods:
        part = make_runs("frozen", ("cel",))
        part["method"] = part["label"] = m.name
        part["identity"] = m.name + part["identity"]
        part["accuracy"] = 0.5 * paper[m.name, "CUB200"][0] + part["seed"]
        parts.append(part)
    runs = pd.concat(parts)
    contents = Contents("frozen", methods, DATASETS[1:], (0, 1, 2), "cpu", beside="Another encoder.")
    notes = table2(runs, contents).notes
    assert "Another encoder." in notes
    assert "CUB200: Spearman rank correlation with the paper over 5 methods +1.00" in "\n".join(notes)
    assert not any(
        "rank correlation" in note for note in table2(runs, replace(contents, profile="quick", beside="")).notes
    )


def test_the_published_table_3_differs_from_the_derived_one_in_pop_only() -> None:
    table = table3_from_paper()
    assert table.summary["printed"] == [66, 6, 0] and table.summary["derived"] == [67, 5, 0]
    assert table.summary["derived_holm"][0] == 59
    differing = {table.columns[i] for r in table.rows for i, c in enumerate(r.cells) if c.bold}
    assert differing == {"POP", "Total"}
    assert any(n.startswith("POP, Common: printed 1/1/0, derived 2/0/0") for n in table.notes)
    assert len(table.data) == 72


# Tables 1 and 4 -----------------------------------------------------------------------------------------------------
def test_published_averages_are_those_of_the_published_cells() -> None:
    frame = published.load("table4")
    cells = frame[frame.dataset != "AVERAGE"].groupby("row")["mean"].mean()
    printed = frame[frame.dataset == "AVERAGE"].set_index("row")["mean"]
    assert (cells - printed).abs().max() < 0.0051
    full = frame[(frame.row == "L_cls + L_cal + L_pdl") & (frame.dataset != "AVERAGE")].set_index("dataset")["mean"]
    main = published.load("table2").query("method == 'CEL'").set_index("dataset")["mean"]
    assert full.to_dict() == main.to_dict()


def test_the_ablation_averages_over_complete_lines_only() -> None:
    full = make_runs(methods=("cel",))
    half = full[full.dataset == "cub200"].assign(label="cel[beta=0]")
    table = table4(pd.concat([full, half]), plan(), rows=[("without", "cel[beta=0]"), ("with", "cel")])
    assert [r.cells[-1].text for r in table.rows] == ["–", "75.60"]
    assert not table.complete


def test_table_1_says_how_to_get_missing_data_where_the_paper_slips_and_what_is_doubtful() -> None:
    measured: list[dict[str, Any]] = [
        {"dataset": "fgvc100", "train": 6667, "test": 3333, "size": 224, "classes": 100, "rate": 0.1, "avg_cls": 9.2, "ambiguity": 0.5,
         "singletons": 0.02, "train_accuracy": 0.007, "test_accuracy": 0.005, "annotator": "0.7 % right in training",
         "doubts": ["it is near chance."]},
        {"dataset": "cub200", "missing": "run fetch cub200"},
    ]  # fmt: skip
    table = table1(measured, [DatasetInfo("fgvc100", "FGVC100", "Fine-Grained"), DATASETS[1]])
    text = to_text(table)
    assert "6667 (6776)" in text and "9.20 (9.09) (!)" in text and "0.7/0.5 %" in text
    assert "FGVC100: annotator 0.7 % right in training." in table.notes
    assert "Warning (!): FGVC100: it is near chance." in table.notes
    assert table.data[0]["annotator_train_accuracy"] == 0.007 and table.data[0]["warnings"] == "it is near chance."
    assert "CUB200 has no numbers: run fetch cub200" in text and not table.complete


# ranks --------------------------------------------------------------------------------------------------------------
def test_ranks_use_complete_data_sets_only_and_name_the_dropped() -> None:
    ranks = rank_analysis(spoil(make_runs(), "dirk", "cub200", 2, "failed"), plan())
    assert ranks.datasets == ("cifar100",) and ranks.incomplete == ("cub200",)
    assert ranks.friedman["average_ranks"].tolist() == [1, 2, 3]
    with pytest.raises(MissingRuns, match="cub200"):
        rank_analysis(make_runs().iloc[:0], plan())


# formats ------------------------------------------------------------------------------------------------------------
AWKWARD = Table(
    "Table & 1",
    "50 % of a_b & {c} | d ~ ^ \\ # $ é α ± – ★ 中",
    ("a_b", "50 %", "[x]"),
    (
        row("[y] | *z*", rendering.Cell("1±2", bold=True), rendering.Cell("−3", underline=True)),
        row("", "", "", rule=True),
    ),
    ("<b>note</b> & more",),
    ("a_b on c: seed 1 failed",),
    ({"x": 1 / 3, "values": {0: 0.1}, "bad": math.nan, "huge": math.inf, "text": 'a,"b"'},),
)


def every_table() -> list[Table]:
    runs, paper = make_runs(), make_runs("paper", ("cel", "dirk", "gone"))
    return [
        AWKWARD,
        table1([], DATASETS),
        table2(runs, plan()),
        table2(paper, plan("paper")),
        table3(paper, plan("paper")),
        table3_from_paper(),
        table4(paper, plan("paper")),
    ]


def test_text_lines_are_aligned() -> None:
    text = to_text(table2(make_runs(), plan()))
    body = [line for line in text.splitlines() if re.search(r"\d±\d", line)]
    assert len({len(line) for line in body}) == 1
    assert "*75." in text and "\x1b[1m75." in to_text(table2(make_runs(), plan()), colour=True)


def test_json_and_csv_keep_full_precision_and_every_seed() -> None:
    table = table2(make_runs(), plan())
    record = json.loads(to_json(table))["data"][0]
    assert record["values"]["1"] == make_runs().accuracy[1] and record["n"] == 3
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    own = [line for line in lines if (line["method"], line["dataset"]) == (record["method"], record["dataset"])]
    assert [line["seed"] for line in own] == ["0", "1", "2"] and all(
        float(line["mean"]) == record["mean"] for line in own
    )
    assert own[1]["accuracy"] == repr(float(make_runs().accuracy[1]))
    assert own[1]["accuracy_printed"] == f"{make_runs().accuracy[1]:.2f}"
    awkward = json.loads(to_json(AWKWARD))["data"][0]
    assert awkward["bad"] is None and awkward["huge"] == "inf" and awkward["x"] == 1 / 3


def check_latex(text: str) -> None:
    """Balanced braces, the right number of cells, only ASCII, and no command beyond a known few."""
    assert text.isascii()
    comment, text = text.split("\n", 1)
    assert comment.startswith("% ") and "booktabs" in comment
    text = text.split("\n", 1)[1] if text.startswith("% ") else text  # the profile, seeds and device
    bare = re.sub(r"\\[&%$#_{}\\]", lambda m: "\n" if m.group() == "\\\\" else "", text)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0 and bare.count("$") % 2 == 0 and "%" not in bare and "#" not in bare
    body = re.search(r"\\begin\{tabular\}\{(\w+)\}(.*)\\end\{tabular\}", bare, re.DOTALL)
    assert body is not None
    for line in body[2].splitlines():
        if "&" in line:
            assert line.count("&") == len(body[1]) - 1
    used = set(re.findall(r"\\([A-Za-z]+)", text))
    assert used <= {
        "begin", "end", "centering", "caption", "label", "scriptsize", "small", "setlength", "tabcolsep", "toprule", "midrule", "bottomrule",
        "textbf", "underline", "smallskip", "linewidth", "raggedright", "par", "textbackslash", "textasciitilde", "textasciicircum",
        "pm", "times", "circ", "dagger", "ddagger", "star", "bullet", "to", "le", "ge", "ne", "alpha", "beta", "gamma", "Delta", "ldots",
    }  # fmt: skip


def test_markdown_and_latex_are_well_formed() -> None:
    for table in every_table():
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.columns) + 1}
        check_latex(to_latex(table, "tab:x"))


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    atomic_write(path, "old")

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x.txt"]


def test_tables_and_figures_import_neither_torch_nor_matplotlib_until_used() -> None:
    modules = "benchmark.exhibits.parts.cells, benchmark.exhibits.parts.panels"
    code = f"import sys, {modules}; sys.exit(bool({{'torch', 'matplotlib'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# What a table can show --------------------------------------------------------------------------------------------------
def test_the_ties_of_table_3_are_split_and_the_caption_says_what_could_be_found() -> None:
    runs = make_runs()
    twins = runs[runs.method == "cel"].assign(method="dirk", label="dirk")
    twins["accuracy"] += [0.0, 0.02, -0.01] * 2
    noisy = runs[runs.method == "proden"].assign()
    noisy["accuracy"] = [75.0, 80.0, 70.0] * 2
    table = table3(pd.concat([runs[runs.method.isin(["cel", "average"])], twins, noisy]), plan())
    named = {row.cells[0].text: [cell.text for cell in row.cells[1:]] for row in table.rows}
    assert named["Total"] == ["0/2/0", "0/2/0", "0/4/0"]
    assert named["ties: equal/undecided"] == ["2/0", "0/2", "2/2"]
    assert "Minimum detectable difference at 80 % power" in table.notes[0]
    runs.loc[runs.method == "cel", "accuracy"] = [20.0, 60.0, 75.0] * 2
    assert "points in the median comparison, >100 after Holm" in table3(runs, plan()).notes[0]


def test_a_mark_shows_all_that_are_not_found_worse_than_the_best() -> None:
    runs = make_runs()
    close = runs[runs.method == "dirk"].assign()
    close["accuracy"] = [75.4, 75.9, 75.2] * 2
    table = table2(pd.concat([runs[runs.method != "dirk"], close]), plan())
    marked = {record["method"]: record["leading"] for record in table.data}
    assert marked == {"cel": True, "dirk": True, "proden": False, "average": False}  # controls do not compete
    texts = {row.cells[1].text: row.cells[2].text for row in table.rows}
    assert texts["DIRK"].endswith("°") and not texts["PRODEN"].endswith("°")
    assert "° not significantly worse than the best" in table.caption


def test_where_every_seed_has_its_own_split_the_tables_say_so() -> None:
    own = tuple(replace(d, test_rows=100, split_by_seed=d.name == "cub200") for d in DATASETS)
    contents = replace(plan(), datasets=own)
    made = [table2(make_runs(), contents), table3(make_runs(), contents), pairs_table(make_runs(), contents)]
    for one in made:
        assert any(n.startswith("CUB200: every seed has its own split") for n in one.notes), one.title
    errors = [note for note in made[0].notes if "Standard error" in note]
    assert "CIFAR-100 4.36 (100 rows)" in errors[0] and "CUB200" not in errors[0]
    folds, one_for_all = (
        select("realworld-all", methods="cel", datasets="lost", settings=s) for s in ((), ("data.split=3",))
    )
    assert contents_of(folds, "cpu").datasets[0].split_by_seed
    assert not contents_of(one_for_all, "cpu").datasets[0].split_by_seed


# Pairs of methods -----------------------------------------------------------------------------------------------------
def pairs_table(runs: pd.DataFrame, contents: Contents, reference: str | None = None) -> Table:
    options = comparisons.Comparisons.Options(reference=reference)
    return comparisons.comparison_table(runs, contents, options)


def many_datasets(many: int) -> tuple[pd.DataFrame, Contents]:
    """Runs of three methods on datasets whose accuracies differ by a point each."""
    datasets = tuple(replace(DATASETS[0], name=f"set{k}", title=f"Set {k}") for k in range(many))
    part = make_runs().query("dataset == 'cifar100'")
    runs = pd.concat([part.assign(dataset=d.name, accuracy=part["accuracy"] + k) for k, d in enumerate(datasets)])
    return runs, replace(plan(), datasets=datasets)


def test_every_pair_of_methods_has_a_line_and_a_reference_leaves_its_own() -> None:
    runs, contents = many_datasets(6)
    table = pairs_table(runs, contents)
    assert [(r["method"], r["other"]) for r in table.data] == [("cel", "dirk"), ("cel", "proden"), ("dirk", "proden")]
    assert all((r["ahead"], r["equal"], r["behind"], r["p"]) == (6, 0, 0, 0.03125) for r in table.data)
    assert [r["p_holm"] for r in table.data] == pytest.approx([3 * 0.03125] * 3)
    alone = pairs_table(runs, contents, "proden")
    assert [(r["method"], r["other"]) for r in alone.data] == [("proden", "cel"), ("proden", "dirk")]
    assert alone.data[0]["mean_difference"] == -table.data[1]["mean_difference"]
    assert alone.data[0]["p_holm"] == pytest.approx(2 * 0.03125)  # the family is smaller


def test_the_intervals_of_a_pair_are_those_of_scipy() -> None:
    runs = make_runs()
    rng = np.random.default_rng(0)
    runs["accuracy"] += rng.normal(0, 2, len(runs))
    record = compare_pairs(runs, plan(), reference="cel")[0][0]
    wide = runs[runs.method.isin(["cel", record["other"]])].pivot_table(
        index="seed", columns=["method", "dataset"], values="accuracy"
    )
    differences = (wide["cel"] - wide[record["other"]]).to_numpy()  # (seeds, datasets)
    interval = stats.ttest_1samp(differences.mean(axis=1), 0).confidence_interval(0.95)
    assert (record["ci_low"], record["ci_high"]) == pytest.approx((interval.low, interval.high))
    assert record["mean_difference"] == pytest.approx(differences.mean())
    assert record["p_better"] == pytest.approx((differences > 0).mean())


@pytest.mark.parametrize(("many", "given"), [(1, False), (4, False), (5, True), (7, True)])
def test_signed_ranks_are_given_from_five_datasets_on_and_say_what_they_cannot_show(many: int, given: bool) -> None:
    table = pairs_table(*many_datasets(many))
    assert all(math.isnan(r["p"]) != given for r in table.data)
    text = to_text(table) + to_markdown(table) + to_latex(table)
    assert "nan" not in text.lower()
    notes = " ".join(table.notes)
    assert ("p is not given" in notes) == (not given)
    assert ("nothing can be significant; 7 datasets are needed" in notes) == (many == 5)


def test_incomplete_datasets_are_left_out_and_copies_are_pointed_out() -> None:
    runs = make_runs()
    runs.loc[runs.method == "dirk", "accuracy"] = runs.loc[runs.method == "cel", "accuracy"].to_numpy()
    table = pairs_table(spoil(runs, "proden", "cub200", 0, "failed"), plan())
    notes = " ".join(table.notes)
    assert not table.complete and "not all methods have all seeds there: CUB200" in notes
    assert {tuple(r["datasets"]) for r in table.data} == {("cifar100",)}
    assert "CEL and DIRK have the same mean on every dataset" in notes
    with pytest.raises(MissingRuns, match="a dataset on which all methods have all seeds"):
        pairs_table(runs[runs.method != "proden"], plan())


@pytest.mark.parametrize(
    ("methods", "reference", "sentence"),
    [
        ("cel", None, "needs two methods"),
        ("cel,average", None, "needs two methods"),
        ("cel,dirk,average", "average", "--reference average is not ranked"),
    ],
)
def test_a_pair_needs_two_ranked_methods(methods: str, reference: str | None, sentence: str) -> None:
    exhibit = comparisons.Comparisons()
    with pytest.raises(UsageError, match=sentence):
        exhibit.required_runs(select("quick", methods=methods), exhibit.Options(reference=reference))
    if reference is None:
        with pytest.raises(UsageError, match="nothing to compare"):
            Table3().required_runs(select("quick", methods=methods), Table3.Options())


def test_a_run_that_changed_its_card_is_noted() -> None:
    def document(*names: str) -> dict[str, Any]:
        places = [{"device": "cuda:0", "device_name": name} for name in names]
        return {"environment": places[-1], "sittings": [{"environment": place} for place in places]}

    found = [store.devices_of(document(*used)) for used in (("A100",), ("A100", "A100"), ("A100", "H100", "H100"))]
    names = [name for _, name in found]
    assert names == ["A100", "A100", "A100 then H100"]
    assert devices_in_words(found) == "cuda A100 (2 runs) and cuda A100 then cuda H100 (1 run)"
    assert devices_in_words(found[2:]) == "cuda A100 then cuda H100"
    assert devices_in_words([("cpu", "AMD EPYC")] * 3) == "cpu" and devices_in_words([]) == "unknown"
    mixed = [("cpu", "EPYC"), ("cuda:0", "A100"), ("cuda:3", "A100")]
    assert devices_in_words(mixed) == "cuda A100 (2 runs) and cpu EPYC (1 run)"
    moved: dict[str, Any] = {"environment": {"device": "cuda:1", "device_name": "A100"}}
    assert store.devices_of(moved) == ("cuda:1", "A100")  # of a version without sittings
    moved["sittings"] = [{"environment": {"device": "cpu", "device_name": "Xeon"}}, {"environment": None}]
    assert devices_in_words([store.devices_of(moved)]) == "cpu Xeon then cuda A100"
    (note,) = device_notes(pd.DataFrame({"status": "done", "device_name": names}))
    assert note.startswith("Warning: 1 run went from A100 to H100 between two sessions")
