"""What a run keeps beside its numbers: whole, checked, and enough to score it again."""

from __future__ import annotations

import io
import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import array_shapes, arrays

from benchmark import store
from benchmark.artifacts import PREDICTIONS, half, npz_bytes
from benchmark.errors import CandidError
from datasets.digits import load
from tests.conftest import TinyBenchmark, make_tiny


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TinyBenchmark:
    bench = make_tiny(tmp_path_factory.mktemp("kept"))
    bench.run("run", "--seeds", "0", "--set", "train.holdout=0.1", check=True)
    return bench


def folder_of(bench: TinyBenchmark, method: str) -> Path:
    return next(bench.results.glob(f"runs/*/{method}/*"))


def test_kept_predictions_score_to_the_accuracies_in_the_summary(bench: TinyBenchmark) -> None:
    data = load(bench.folder, test=1500)
    folder = folder_of(bench, "proden")
    summary = json.loads((folder / "run.json").read_text())["summary"]
    found = store.predictions(folder)
    assert found is not None and found.belief is not None
    assert len(found.test_rows) == 1500 and len(found.train_rows) == round(297 * 0.9)
    truth = data.test.labels.numpy()[found.test_rows]
    assert 100 * float((found.test_logits.argmax(1) == truth).mean()) == summary["accuracy"]
    belief = 100 * float((found.belief.argmax(1) == data.train.labels.numpy()[found.train_rows]).mean())
    assert belief == pytest.approx(summary["train_accuracy"], abs=1e-9)
    assert np.allclose(found.belief.sum(1), 1, atol=2e-3)


def test_training_labels_can_be_the_networks_choice_among_the_candidates(tmp_path: Path) -> None:
    bench, truth = make_tiny(tmp_path), load(tmp_path, test=1500).train.labels.numpy()
    for labels_by in ("belief", "network"):
        bench.run("run", "--methods", "proden,cc", "--seeds", "0", "--set", f"train.labels_by={labels_by}", check=True)
    runs = store.runs(bench.results).sort_values("overrides", key=lambda column: column.astype(str))
    assert runs["train_accuracy"].isna().sum() == 1  # CC by belief: it keeps none
    for _, (own, network) in ((method, part["path"]) for method, part in runs.groupby("method")):
        weights = {json.loads((Path(path) / "run.json").read_text())["weights_sha256"] for path in (own, network)}
        assert len(weights) == 1  # looking changes nothing
        before, found = store.predictions(own), store.predictions(network)
        assert found is not None and found.belief is not None and before is not None
        assert before.belief is None or not np.array_equal(before.belief, found.belief)
        stated = json.loads((Path(network) / "run.json").read_text())["summary"]["train_accuracy"]
        assert 100 * (found.belief.argmax(1) == truth[found.train_rows]).mean() == pytest.approx(stated, abs=1e-9)


def test_a_method_without_belief_keeps_its_logits_alone(bench: TinyBenchmark) -> None:
    found = store.predictions(str(folder_of(bench, "cc")))
    assert found is not None and found.belief is None and found.test_logits.shape == (1500, 10)


def test_files_that_the_run_did_not_write_are_one_sentence(bench: TinyBenchmark, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(folder_of(bench, "cc"), folder)
    path, document = folder / PREDICTIONS, json.loads((folder / "run.json").read_text())
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CandidError, match="not the file that the run wrote"):
        store.predictions(folder)
    for arrays_, problem in (
        ({"test_logits": np.zeros((2, 3))}, "not those of a run's predictions"),
        ({"test_logits": np.zeros((2, 3)), "test_rows": np.zeros(3, int), "train_rows": np.zeros(1, int)}, "shape"),
        ({"test_logits": np.array([["x"]]), "test_rows": np.zeros(1, int), "train_rows": np.zeros(1, int)}, "type"),
    ):
        content = npz_bytes(arrays_)
        assert problem in refusal(folder, document, content)
    pickled = io.BytesIO()
    np.savez(pickled, test_logits=np.array([{}], dtype=object))
    assert "plain arrays" in refusal(folder, document, pickled.getvalue())
    path.unlink()
    assert store.predictions(folder) is None  # removed on purpose
    del document["files"]
    store.StoredRun(folder).write(document)
    assert store.predictions(folder) is None  # a run from before there were predictions
    with pytest.raises(CandidError, match="not a run folder"):
        store.predictions(tmp_path)


def refusal(folder: Path, document: dict, content: bytes) -> str:
    """What is said of a file whose digest is right and whose content is not."""
    (folder / PREDICTIONS).write_bytes(content)
    store.StoredRun(folder).write(document | {"files": {PREDICTIONS: sha256(content).hexdigest()}})
    with pytest.raises(CandidError) as error:
        store.predictions(folder)
    return str(error.value)


@given(arrays(np.float32, array_shapes(min_dims=2, max_dims=2), elements=some.floats(-1e9, 1e9, width=32)))
def test_rounding_keeps_the_largest_entry_of_every_row(values: np.ndarray) -> None:
    rounded = half(values)
    assert rounded.dtype == np.float16 and np.isfinite(rounded).all()
    assert (rounded.argmax(1) == values.argmax(1)).all()


def test_a_near_tie_is_decided_as_before_rounding() -> None:
    near = np.array([[1.0, 1.00001, 0.0], [6e4, 7e4, 7e4]], dtype=np.float32)
    assert near[:1].astype(np.float16).argmax(1)[0] == 0  # what rounding alone would do
    assert half(near).argmax(1).tolist() == [1, 1]


def test_equal_arrays_are_equal_bytes() -> None:
    values = np.arange(12.0).reshape(3, 4)
    assert npz_bytes({"a": values}) == npz_bytes({"a": values.copy()})
