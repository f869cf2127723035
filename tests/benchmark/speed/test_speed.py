"""The speed command: what it prints and writes, that the bare loop is bare, and that fast and plain forms agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmark.analysis.table import to_text
from benchmark.errors import UsageError
from benchmark.plan.profile import load_profile
from benchmark.plan.resolution import resolve
from benchmark.run.options import RunOptions
from benchmark.speed import page, parts
from benchmark.speed.bare_loop import BareLoop, Recording, tensors_of, watching
from benchmark.speed.timing import forked
from benchmark.speed.training import TimedTrainer
from benchmark.speed.views import natural_like
from methods.registry import discover
from tests.conftest import TinyBenchmark

SHARES = ("views", "losses", "hooks", "evaluation")


def timed_trainer(bench: TinyBenchmark, method: str) -> TimedTrainer:
    spec = resolve(load_profile(str(bench.profile)), discover().entries[method], "digits", 0)
    return TimedTrainer(spec, RunOptions(bench.results, bench.folder / "data"))


# the command --------------------------------------------------------------------------------------------------------


def test_the_command_measures_methods_against_their_bare_loops(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    done = bench.run("speed", "--methods", "proden,pico", "--datasets", "digits", "--rounds", "1", check=True)
    document = json.loads((bench.results / "speed" / "digits-small-cnn-3-16-16-batch-32.json").read_text())
    assert document["kind"] == "training" and document["rounds"] == 1
    assert [row["method"] for row in document["rows"]] == ["proden", "pico"]
    for row in document["rows"]:
        assert row["method"] in done.stdout
        assert 0 < row["images_per_second"] < row["bare_images_per_second"]
        assert all(0 <= row[share] < 1 for share in SHARES) and row["views"] > 0 and row["evaluation"] > 0
        assert row["peak_memory_mb"] > 50
    assert document["rows"][0]["relative_to_proden"] == 1.0
    assert "of the bare loop" in done.stdout
    assert not (bench.results / "runs").exists()


def test_a_network_can_be_chosen_and_a_wrong_number_of_rounds_is_refused(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    refused = bench.run("speed", "--rounds", "0")
    assert refused.returncode == 2 and "--rounds" in refused.stderr
    settings = ("train.batch=4", "dataset.test=20", "backbone.name=resnet18-cifar")
    words = [word for setting in settings for word in ("--set", setting)]
    bench.run("speed", "--methods", "cc", "--datasets", "digits", "--rounds", "1", *words, check=True)
    document = json.loads((bench.results / "speed" / "digits-resnet18-cifar-3-16-16-batch-4.json").read_text())
    assert document["backbone"] == "resnet18-cifar" and page.goal_kept(document).endswith(f"{page.LARGE_GOAL:.2f}")


def test_levers_are_tried_in_real_training(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    done = bench.run("speed", "--levers", "--datasets", "digits", "--rounds", "1", check=True)
    rows = json.loads((bench.results / "speed" / "levers.json").read_text())["rows"]
    gains = {row["lever"]: row["times_faster"] for row in rows}
    compiled = {"compiled step"}  # for which a machine may have no compiler
    assert len(rows) >= 5 and all(gains[lever] > 0 for lever in gains.keys() - compiled)
    for row in rows:
        assert row["lever"] in done.stdout and (gains[row["lever"]] is not None or row["used"].startswith("not here: "))


def test_a_forked_function_that_dies_is_noticed() -> None:
    assert forked(lambda: 1.0, lambda: 2.0) == [1.0, 2.0]
    with pytest.raises(EOFError):
        forked(lambda: 1 / 0)


# the bare loop ------------------------------------------------------------------------------------------------------


def test_outermost_calls_are_noted_with_their_gradients() -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    head = nn.Linear(3, 2)
    x = torch.randn(5, 4)
    recording: Recording = []
    with watching(recording):
        with torch.no_grad():
            inner(x)
        features = inner(x)
        loss = head(features).square().sum()
        loss.backward()
    calls = [call for call in recording if call is not None]
    assert [call.module for call in calls] == [inner, inner, head]
    assert [call.with_gradient for call in calls] == [False, True, True]
    assert [[g is not None for g in call.gradients] for call in calls] == [[False], [True], [True]]
    assert torch.equal(calls[2].arguments[0], features) and calls[2].arguments[0].is_leaf
    with torch.no_grad():
        assert torch.allclose(calls[2].gradients[0], 2 * head(features))  # type: ignore[arg-type]


def test_the_bare_loop_makes_the_gradients_of_the_step_and_leaves_the_weights_alone(
    tiny_benchmark: TinyBenchmark,
) -> None:
    timed = timed_trainer(tiny_benchmark, "proden")
    method, batch = timed.trainer.method, timed.batches()[:1]
    before = [p.detach().clone() for p in method.parameters()]
    loop = BareLoop(timed.trainer, batch)
    wanted = [p.grad.clone() for p in method.parameters() if p.grad is not None]
    with torch.no_grad():  # back to the weights of the recorded step, which trained as any other
        assert any(not torch.equal(p, old) for p, old in zip(method.parameters(), before, strict=True))
        for p, old in zip(method.parameters(), before, strict=True):
            p.copy_(old)
    loop.steps(batch)
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    assert len(wanted) > 4
    for own, other in zip(gradients, wanted, strict=True):
        assert torch.allclose(own, other, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(p, old) for p, old in zip(method.parameters(), before, strict=True))


@pytest.mark.parametrize(("method", "passes"), [("proden", False), ("nepll", True)])
def test_networks_in_epoch_hooks_are_found(tiny_benchmark: TinyBenchmark, method: str, passes: bool) -> None:
    timed = timed_trainer(tiny_benchmark, method)
    calls: Recording = []
    with watching(calls):
        timed.hooks()
    assert bool(calls) == passes
    assert not any(call.with_gradient for call in calls if call is not None)


def test_tensors_are_found_in_whatever_a_network_returns() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    assert [t.item() for t in tensors_of((a, [b, None], "text"))] == [0, 1]


# plain forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 20])
def test_loops_and_vectorised_forms_give_the_same_numbers(classes: int) -> None:
    loops, vectorised = parts.cel_losses(classes, batch=8, length=16)
    for plain, fast in zip(loops(), vectorised(), strict=True):
        assert torch.allclose(plain, fast, rtol=1e-4, atol=1e-5)


def test_the_neighbour_search_is_measured_with_its_memory() -> None:
    (row,) = parts.measure_neighbours(rows=300, width=8)
    assert row["met"] and 0 <= row["own_mb"] < 500 and row["seconds"] > 0
    assert "300 × 8" in to_text(page.table(about("knn") | {"rows": [row]}))


def test_the_test_images_look_like_photographs() -> None:
    image = torch.from_numpy(natural_like(32, 32, 0)).float()
    steps = (image[1:] - image[:-1]).abs()
    assert steps.mean() < image.std()  # neighbours are alike, unlike in noise


# tables and page ----------------------------------------------------------------------------------------------------


def about(kind: str) -> dict[str, Any]:
    versions = {"python": "3", "torch": "2", "torchvision": "0", "device": "cpu", "device_name": "CPU"}
    return {"kind": kind, "date": "2026-01-01", "cores": 2, "rounds": 1, **versions}


def measurements() -> dict[str, page.Document]:
    speeds = {"images_per_second": 900.0, "bare_images_per_second": 1000.0, "step": 0.97, "all_in": 0.8}
    row = {"method": "proden", **speeds, **dict.fromkeys(SHARES, 0.01), "relative_to_proden": 1.0}
    row["peak_memory_mb"] = 500.4
    setting = {"profile": "quick", "dataset": "glyphs", "backbone": "small-cnn", "batch": 16, "overrides": []}
    training = about("training") | setting | {"image": [3, 16, 16], "compiled": False, "rows": [row]}
    views = {"one_by_one_us": 1000.0, "batched_us": 100.0, "times_faster": 10.0, "goal": 12.0, "met": False}
    return {"training": training, "views": about("views") | {"rows": [{"size": "32 px", **views}]}}


def test_the_page_holds_ranges_and_says_what_was_missed() -> None:
    text = page.measured(measurements())
    line = "| glyphs, small-cnn, 3 × 16 × 16, batch 16 | 0.97–0.97 | 0.80–0.80 | 1 of 1 ≥ 0.90 | 2026-01-01 |"
    assert line in text
    assert "| 32 px | 1000 | 100 | 10.00 | 12.00 | no |" in text
    known = {"seconds_per_step_relative_to_proden": 1.0, "peak_memory_mb": 500, "measured": "2026-01-01"}
    assert page.cost(measurements()) == {"proden": known}


def test_costs_come_from_the_newest_measurement_of_the_quick_profile_as_it_is() -> None:
    documents = measurements()
    documents["newer"] = documents["training"] | {"date": "2026-02-01"}
    assert page.cost(documents)["proden"]["measured"] == "2026-02-01"
    for name in ("training", "newer"):
        documents[name]["overrides"] = ["train.batch=8"]
    assert page.cost(documents) == {}


def test_the_page_in_the_docs_shows_the_numbers_beside_it() -> None:
    documents = json.loads((page.DOCS / "speed.json").read_text(encoding="utf-8"))
    text = (page.DOCS / "speed.md").read_text(encoding="utf-8")
    assert page.measured(documents) in text and len(text.splitlines()) <= 65
    assert page.cost(documents) == json.loads((page.DOCS / "cost.json").read_text(encoding="utf-8"))


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of docs with one older measurement."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "speed.md").write_text("Words.\n<!-- measured -->\nold\n<!-- /measured -->\n")
    (folder / "speed.json").write_text(json.dumps({"views": measurements()["views"]}))
    monkeypatch.setattr(page, "DOCS", folder)
    return folder


def test_new_measurements_join_the_older_ones_and_prose_stays(tmp_path: Path, docs: Path) -> None:
    (tmp_path / "new.json").write_text(json.dumps(measurements()["training"]))
    assert page.write(tmp_path) == [docs / name for name in ("speed.json", "speed.md", "cost.json")]
    text = (docs / "speed.md").read_text()
    assert text.startswith("Words.\n") and "32 px" in text and "0.97–0.97" in text and "old" not in text
    page.write(tmp_path)
    assert (docs / "speed.md").read_text() == text


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        '{"kind": "training", "rows": []}',
        '{"kind": "other", "rows": []}',
        json.dumps(measurements()["training"] | {"rows": []}),
    ],
)
def test_a_file_that_is_no_measurement_is_named_and_the_page_is_kept(tmp_path: Path, docs: Path, content: str) -> None:
    before = (docs / "speed.md").read_text()
    (tmp_path / "old.json").write_text(content)
    with pytest.raises(UsageError, match=r"old\.json is no measurement of this version; delete it"):
        page.write(tmp_path)
    assert (docs / "speed.md").read_text() == before
