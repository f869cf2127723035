"""The speed command: what it prints and writes, that the bare loop is bare, and that fast and plain forms agree."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from benchmark.errors import UsageError
from benchmark.plan.profile import load_profile
from benchmark.plan.spec import resolve
from benchmark.run.options import RunOptions
from benchmark.speed import knn as speed_knn
from benchmark.speed import levers as speed_levers
from benchmark.speed import losses as speed_losses
from benchmark.speed import page as speed_page
from benchmark.speed import reference as speed_reference
from benchmark.speed import timing as speed_timing
from benchmark.speed.trainer import PARTS, Recording, Subject, tensors_of
from benchmark.speed.views import natural_like
from methods.registry import discover
from tests.conftest import TinyBenchmark

# the command --------------------------------------------------------------------------------------------------------


def test_the_command_measures_methods_against_their_bare_loops(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    done = bench.run("speed", "--methods", "proden,pico", "--datasets", "digits", "--rounds", "1", check=True)
    document = json.loads((bench.results / "speed" / "digits-small-cnn-3x16x16-batch32.json").read_text())
    assert document["kind"] == "trainer" and document["rounds"] == 1
    assert [row["method"] for row in document["rows"]] == ["proden", "pico"]
    for row in document["rows"]:
        assert row["method"] in done.stdout
        assert 0 < row["images_per_second"] < row["bare_images_per_second"]
        assert set(row["shares"]) == set(PARTS) and sum(row["shares"].values()) < 1
        assert row["peak_memory_mb"] > 50
    proden, pico = document["rows"]
    assert proden["relative_to_proden"] == 1.0
    assert proden["state_bytes_per_sample"] == pico["state_bytes_per_sample"] == 10 * 4  # one float per class
    assert "of the bare loop" in done.stdout
    assert not (bench.results / "runs").exists()


def test_a_network_can_be_chosen_and_a_wrong_number_of_rounds_is_refused(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    refused = bench.run("speed", "--rounds", "0")
    assert refused.returncode == 2 and "--rounds" in refused.stderr
    words = [
        "--methods",
        "cc",
        "--datasets",
        "digits",
        "--rounds",
        "1",
        "--set",
        "train.batch=4",
        "--set",
        "dataset.test=20",
    ]
    bench.run("speed", *words, "--set", "backbone.name=resnet18-cifar", check=True)
    document = json.loads((bench.results / "speed" / "digits-resnet18-cifar-3x16x16-batch4.json").read_text())
    assert document["backbone"] == "resnet18-cifar" and speed_page.goal_of(document) == speed_page.LARGE_GOAL


def test_levers_are_tried_in_real_training(tiny_benchmark: TinyBenchmark) -> None:
    bench = tiny_benchmark
    done = bench.run("speed", "--levers", "--datasets", "digits", "--rounds", "1", check=True)
    rows = json.loads((bench.results / "speed" / "levers.json").read_text())["rows"]
    gains = {row["lever"]: row["gain"] for row in rows}
    compiled = {"compiled step", "compiled colour operations, 32 px"}  # for which a machine may have no compiler
    assert len(rows) >= 8 and all(gains[lever] > 0 for lever in gains.keys() - compiled)
    for row in rows:
        assert row["lever"] in done.stdout and (row["gain"] is not None or row["used"].startswith("not here: "))


def test_seeds_in_one_program_have_the_gradients_of_each_alone(tiny_benchmark: TinyBenchmark) -> None:
    with speed_timing.one_thread():
        profile = load_profile(str(tiny_benchmark.profile))
        spec = resolve(profile, discover().entries["proden"], "digits", 0)
        subject = Subject(spec, RunOptions(tiny_benchmark.results, tiny_benchmark.folder / "data"))
        alone, together = speed_levers.seeds_together(subject)
        separate, joint = alone(), together()
    assert separate.keys() == joint.keys() and len(separate) > 4
    for name, gradient in separate.items():
        assert gradient.shape[0] == speed_levers.SEEDS
        assert torch.allclose(gradient, joint[name], rtol=1e-3, atol=1e-5), name


# the bare loop ------------------------------------------------------------------------------------------------------


def test_outermost_calls_are_noted_with_their_gradients() -> None:
    inner = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    head = nn.Linear(3, 2)
    x = torch.randn(5, 4)
    recording = Recording()
    with recording.watching():
        with torch.no_grad():
            inner(x)
        features = inner(x)
        loss = head(features).square().sum()
        loss.backward()
    calls = [event for event in recording.events if event is not None]
    assert [call.module for call in calls] == [inner, inner, head]
    assert [call.with_gradient for call in calls] == [False, True, True]
    assert [[g is not None for g in call.gradients] for call in calls] == [[False], [True], [True]]
    assert torch.equal(calls[2].arguments[0], features) and calls[2].arguments[0].is_leaf
    with torch.no_grad():
        assert torch.allclose(calls[2].gradients[0], 2 * head(features))  # type: ignore[arg-type]


def test_networks_in_epoch_hooks_are_the_networks_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    class Network(nn.Module):
        def __init__(self, *parts: nn.Module) -> None:
            super().__init__()
            self.parts = nn.ModuleList(parts)

        def forward(self, x: Tensor) -> Tensor:
            nonlocal clock
            clock += 3.0
            for part in self.parts:
                part(x)
            return x

    class Hooked(nn.Module):
        def on_epoch_start(self, *_: object) -> None:
            nonlocal clock
            clock += 2.0
            Network(Network())(torch.zeros(1))
            Network()(torch.zeros(1))

        def on_epoch_end(self, *_: object) -> None:
            nonlocal clock
            clock += 0.5

    monkeypatch.setattr(speed_timing, "now", lambda device: clock)
    subject = object.__new__(Subject)
    subject.device = torch.device("cpu")
    subject.trainer = SimpleNamespace(method=Hooked(), clock=lambda: None)  # type: ignore[assignment]
    assert subject._epoch_hooks() == (9.0, 2.5)


def test_tensors_are_found_in_whatever_a_network_returns() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    assert [t.item() for t in tensors_of((a, [b, None], "text"))] == [0, 1]


# plain forms --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 20])
@pytest.mark.parametrize(
    "make",
    [
        lambda classes: speed_losses.cel_pair(classes, batch=8, length=16),
        lambda classes: speed_losses.cel_pair(classes, batch=8, length=16, apart=torch.unbind),
        lambda classes: speed_losses.able_pair(classes, batch=8),
        lambda classes: speed_losses.pop_pair(classes, rows=30),
        lambda classes: speed_losses.pico_pair(classes, batch=8, length=16),
    ],
)
def test_loops_and_vectorised_forms_give_the_same_numbers(
    make: Callable[[int], speed_losses.Pair], classes: int
) -> None:
    pair = make(classes)
    for plain, fast in zip(pair.loops(), pair.vectorised(), strict=True):
        assert torch.allclose(plain.float(), fast.float(), rtol=1e-4, atol=1e-5), pair.name


def test_purification_of_the_measurement_removes_something() -> None:
    pair = speed_losses.pop_pair(20, rows=30)
    weights = torch.tensor([[0.5, 0.1, 0.4]])
    sets, _ = speed_reference.purified(weights, torch.ones(1, 3, dtype=torch.bool), 0.3)
    assert sets.tolist() == [[True, False, True]]
    assert int(pair.vectorised()[0].sum()) > 0


# text and page ------------------------------------------------------------------------------------------------------


def about(kind: str) -> dict[str, object]:
    versions = {"python": "3", "torch": "2", "torchvision": "0", "device": "cpu", "device_name": "CPU"}
    return {"kind": kind, "date": "2026-01-01", "cores": 2, "rounds": 1, **versions}


def measurements() -> list[dict[str, object]]:
    row = {
        "method": "proden",
        "images_per_second": 900.0,
        "bare_images_per_second": 1000.0,
        "ratio": 0.8,
        "step_ratio": 0.97,
        "plain_ratio": 0.99,
        "compile_seconds": None,
        "shares": dict.fromkeys(PARTS, 0.01),
        "relative_to_proden": 1.0,
        "seconds_per_run": 4.0,
        "peak_memory_mb": 500.4,
        "state_bytes_per_sample": 80.0,
    }
    setting = {
        "profile": "quick",
        "dataset": "glyphs",
        "backbone": "small-cnn",
        "batch": 16,
        "seeds": 3,
        "overrides": [],
    }
    trainer = about("trainer") | setting | {"pictures": [3, 16, 16], "classes": 20, "rows": [row]}
    views = {"per_sample_us": 1000.0, "batched_us": 100.0, "ratio": 10.0, "goal": 12.0, "met": False}
    return [trainer, about("views") | {"rows": {"32px": views}}]


def test_the_page_holds_every_measurement_and_says_what_was_missed() -> None:
    page = speed_page.page(measurements())
    assert "| proden | 900 | 1000 | 0.80 | 0.97 |" in page
    assert "0 of 1 methods with everything (0 with `--eval-every 5`), 1 of 1 counting the step alone" in page
    assert "| 32px | 1000 µs | 100 µs | 10.0 × | 12.0 ×, not met |" in page
    assert (
        "| glyphs, small-cnn, 3 × 16 × 16, batch 16, proden alone | 0.90 | 0.97–0.97 | 1 of 1 | 0.99–0.99 | 1 of 1 | 0.80–0.80 | 0 of 1 |"
        in page
    )
    assert "12 in all" in page  # three seeds of four seconds
    assert speed_page.cost(measurements()[:1]) == {
        "proden": {"seconds_per_step_relative_to_proden": 1.0, "peak_memory_mb": 500}
    }


def test_a_second_pass_in_the_state_update_is_not_counted_twice() -> None:
    measured = dict.fromkeys(PARTS, 0.0) | {"losses": -0.2, "state": 0.25}
    assert speed_page.shares(measured) == pytest.approx(dict.fromkeys(PARTS, 0.0) | {"state": 0.05})


def test_docs_are_written_from_all_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_page, "PAGE", tmp_path / "speed.md")
    monkeypatch.setattr(speed_page, "COST", tmp_path / "cost.json")
    for document in measurements():
        (tmp_path / f"{document['kind']}.json").write_text(json.dumps(document))
    assert speed_page.write(tmp_path) == [tmp_path / "speed.md", tmp_path / "cost.json"]
    assert "## Views" in (tmp_path / "speed.md").read_text()


def test_what_rare_evaluation_would_leave_is_said_only_where_every_epoch_was_evaluated() -> None:
    trainer = measurements()[0]
    assert "--eval-every 5" in speed_page.text(trainer)
    assert "--eval-every 5" not in speed_page.text(trainer | {"eval_every": 5})


@pytest.mark.parametrize(
    "content",
    [
        "not json",
        "[]",
        '{"kind": "trainer", "rows": []}',
        '{"kind": "other", "rows": []}',
        json.dumps(measurements()[0] | {"rows": []}),
    ],
)
def test_a_file_that_is_no_measurement_is_named_and_the_page_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr(speed_page, "PAGE", tmp_path / "speed.md")
    (tmp_path / "speed.md").write_text("as it was")
    (tmp_path / "old.json").write_text(content)
    with pytest.raises(UsageError, match=r"old\.json is no measurement of this version; delete it"):
        speed_page.write(tmp_path)
    assert (tmp_path / "speed.md").read_text() == "as it was"


def test_the_neighbour_search_is_measured_with_its_memory() -> None:
    (row,) = speed_knn.measure(rows=300, width=8)
    assert row["met"] and 0 <= row["own_mb"] < 500 and row["seconds"] > 0
    document = about("knn") | {"rows": [row]}
    assert "300 × 8" in speed_page.text(document)


def test_the_test_pictures_look_like_photographs() -> None:
    picture = torch.from_numpy(natural_like(32, 32, 0)).float()
    steps: Tensor = (picture[1:] - picture[:-1]).abs()
    assert steps.mean() < picture.std()  # neighbours are alike, unlike in noise
