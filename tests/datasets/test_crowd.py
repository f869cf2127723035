"""Crowd tables: answers of several people as candidate sets; CIFAR-10N from its own files."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from benchmark.config.selection import select
from benchmark.trainer.candidates import candidate_set
from benchmark.trainer.loading import dataset_of
from datasets import cifar10, registry
from datasets.base import DataError
from datasets.candidates.votes import candidates_by_votes

CLASSES = ("cat", "dog", "owl")


def crowd(folder: Path, rows: int = 60, seed: int = 0, kind: str = "csv") -> np.ndarray:
    """A folder in which seven people, each right in half of the cases, look at each row by threes. The truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, rows)
    x = np.eye(3)[truth] * 2 + rng.normal(size=(rows, 3))
    folder.mkdir(parents=True)
    lines = ["row,annotator,answer"]
    for row in range(rows):
        for person in rng.choice(7, 3, replace=False):
            answer = truth[row] if rng.random() < 0.3 else rng.integers(0, 3)
            lines.append(f"{'r' * (kind == 'csv')}{row},p{person},{CLASSES[answer]}")
    (folder / "answers.csv").write_text("\n".join(lines) + "\n")
    if kind == "npz":
        np.savez(folder / "data.npz", x=x, y=truth, class_names=np.array(CLASSES))
    else:
        frame = pd.DataFrame(x, columns=["a", "b", "c"])
        frame["id"], frame["label"] = [f"r{row}" for row in range(rows)], [CLASSES[label] for label in truth]
        frame["split"] = ["test" if row % 5 == 0 else "train" for row in range(rows)]
        frame["id"] = " " + frame["id"]  # blanks around an id mean nothing
        frame.to_csv(folder / "data.csv", index=False)
    return truth


@pytest.mark.parametrize(
    ("votes", "first"), [(1, [True, True, False]), (2, [True, False, False]), (5, [True, False, False])]
)
def test_sets_are_the_union_or_what_enough_people_say(votes, first):
    counts = np.array([[2, 1, 0], [0, 1, 1], [0, 0, 0]])  # nobody agrees on the second row: the most voted are kept
    assert candidates_by_votes(counts, votes).tolist() == [first, [False, True, True], [False, False, False]]


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_folder_of_answers_is_a_data_set_in_which_the_truth_may_be_outside(tmp_path, kind):
    truth = crowd(tmp_path / "birds", kind=kind)
    dataset = registry.get(str(tmp_path / "birds")).load(tmp_path)
    assert dataset.name == "birds" and dataset.class_names == CLASSES and dataset.may_lack_truth
    assert dataset.candidates is not None and dataset.candidates.any(1).all()
    inside = dataset.candidates[torch.arange(len(dataset.train)), dataset.train.labels]
    assert 0.5 < inside.double().mean() < 1
    if kind == "csv":
        assert len(dataset.test) == 12 and dataset.test.labels.tolist() == truth[::5].tolist()
    strict = registry.get(str(tmp_path / "birds")).load(tmp_path, votes=3)
    assert strict.candidates is not None and strict.candidates.sum() < dataset.candidates.sum()
    with pytest.raises(DataError, match="do not contain the true label"):
        registry.get(str(tmp_path / "birds")).load(tmp_path, 0, "refuse")


def test_a_plan_takes_the_answers_and_knows_them_by_their_content(tmp_path):
    crowd(tmp_path / "birds")
    words = {"datasets": str(tmp_path / "birds"), "settings": ("dataset.votes=2",)}
    (spec,) = select("quick", methods="alim", seeds="0", **words).specs()
    dataset = dataset_of(spec, tmp_path)
    assert spec.data.generator == "own"
    assert torch.equal(candidate_set(spec, dataset, tmp_path / "results").matrix, dataset.candidates)
    before = spec.dataset_sha256
    for file in ("answers.csv", "data.csv"):
        path = tmp_path / "birds" / file
        path.write_text(path.read_text().replace("dog", "hen"))
        (spec,) = select("quick", methods="alim", seeds="0", **words).specs()
        assert spec.dataset_sha256 != before
        before = spec.dataset_sha256


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("answers.csv", "annotator", "who", "has no column `annotator`"),
        ("answers.csv", "r7,", "r700,", r"row \d+ is about 'r700', which .*data\.csv does not have"),
        ("answers.csv", "r7,p", "r7,,", "row 22 does not have 3 fields"),
        ("answers.csv", "r7,", "r8,", "1 row without any candidate, the first is row 8 \\(r7\\)"),
        ("data.csv", "r7", "r8", "row 22 is about 'r7'"),
    ],
)
def test_bad_tables_are_one_sentence(tmp_path, file, old, new, sentence):
    crowd(tmp_path / "birds")
    path = tmp_path / "birds" / file
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(DataError, match=sentence) as caught:
        registry.get(str(tmp_path / "birds")).load(tmp_path)
    assert "\n" not in str(caught.value)


def test_more_votes_than_any_answer_has_are_refused(tmp_path):
    crowd(tmp_path / "birds")
    with pytest.raises(DataError, match=r"votes=4 is not possible; take 1 \(every answer counts\) to 3"):
        registry.get(str(tmp_path / "birds")).load(tmp_path, votes=4)
    # Three lines of one person are one vote.
    path = tmp_path / "birds" / "answers.csv"
    path.write_text("row,annotator,answer\n" + "".join(f"r{row},p,cat\n" * 3 for row in range(60)))
    with pytest.raises(DataError, match="to 1"):
        registry.get(str(tmp_path / "birds")).load(tmp_path, votes=2)


def test_a_folder_without_rows_or_with_two_kinds_of_them_is_refused(tmp_path):
    crowd(tmp_path / "birds")
    np.savez(tmp_path / "birds" / "data.npz", x=np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"holds data\.npz and data\.csv; put one of"):
        registry.get(str(tmp_path / "birds")).load(tmp_path)
    for file in ("data.csv", "data.npz"):
        (tmp_path / "birds" / file).unlink()
    with pytest.raises(DataError, match="holds no rows"):
        registry.get(str(tmp_path / "birds")).load(tmp_path)
    with pytest.raises(DataError, match="votes=0 is not possible"):
        registry.get(str(tmp_path / "birds")).load(tmp_path, votes=0)


# CIFAR-10 and CIFAR-10N ---------------------------------------------------------------------------------------------


def cifar(root: Path, per_file: int = 4) -> np.ndarray:
    """CIFAR-10 in miniature; the training labels."""
    folder = root / "cifar10" / cifar10.FOLDER
    folder.mkdir(parents=True)
    labels = []
    for k, file in enumerate((*cifar10.TRAIN, *cifar10.TEST)):
        own = [(3 * k + i) % 10 for i in range(per_file)]
        pixels = np.full((per_file, 3072), k, dtype=np.uint8)
        (folder / file).write_bytes(pickle.dumps({"data": pixels, "labels": own}, protocol=2))
        labels += own
    (folder / cifar10.META).write_bytes(pickle.dumps({"label_names": [f"c{i}" for i in range(10)]}, protocol=2))
    return np.array(labels[: 5 * per_file])


def human(path: Path, truth: np.ndarray, archive: bool = False) -> None:
    """The file of answers as torch.save writes it, alone or in the archive: two are right, one is next door."""
    said = {
        "clean_label": truth,
        "random_label1": truth.copy(),
        "random_label2": (truth + 1) % 10,
        "random_label3": truth.copy(),
    }
    said["random_label3"][0] = said["random_label1"][0] = (truth[0] + 2) % 10  # the first row misses the truth
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(said, buffer)
    if not archive:
        path.write_bytes(buffer.getvalue())
        return
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"CIFAR-N/{cifar10.HUMAN}", buffer.getvalue())


def test_cifar10_is_read_from_its_batches(tmp_path):
    truth = cifar(tmp_path)
    dataset = cifar10.load(tmp_path, check_sizes=False)
    assert dataset.train.labels.tolist() == truth.tolist() and len(dataset.test) == 4
    assert dataset.train.images.shape == (20, 3, 32, 32) and dataset.train.images[4].unique().tolist() == [1]
    assert cifar10.find(tmp_path).status == "found"
    with pytest.raises(DataError, match="20 images where the official set has 50,000"):
        cifar10.load(tmp_path)
    (tmp_path / "cifar10" / cifar10.FOLDER / "data_batch_3").unlink()
    assert "data_batch_3" in cifar10.find(tmp_path).detail
    with pytest.raises(DataError, match="data_batch_3 is missing"):
        cifar10.load(tmp_path, check_sizes=False)


@pytest.mark.parametrize("archive", [False, True])
def test_cifar10n_has_the_answers_of_three_people(tmp_path, archive):
    truth = cifar(tmp_path)
    human(tmp_path / "cifar10n" / (cifar10.ZIPPED if archive else cifar10.HUMAN), truth, archive)
    dataset = cifar10.load_human(tmp_path, check_sizes=False)
    assert dataset.candidates is not None and dataset.may_lack_truth
    rows = torch.arange(20)
    assert not dataset.candidates[0, truth[0]] and dataset.candidates[rows[1:], torch.from_numpy(truth)[1:]].all()
    assert dataset.candidates.sum(1).tolist() == [2] * 20
    assert cifar10.load_human(tmp_path, votes=2, check_sizes=False).candidates.sum(1).tolist() == [1] * 20


def test_answers_of_other_images_and_hostile_files_are_refused(tmp_path):
    truth = cifar(tmp_path)
    path = tmp_path / "cifar10n" / cifar10.HUMAN
    human(path, truth[::-1].copy())
    with pytest.raises(DataError, match="does not belong to these images"):
        cifar10.load_human(tmp_path, check_sizes=False)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"clean_label": Path("x")}))
    with pytest.raises(DataError, match="it refers to pathlib"):
        cifar10.load_human(tmp_path, check_sizes=False)
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="is not the file of CIFAR-10N's answers or is damaged"):
        cifar10.load_human(tmp_path, check_sizes=False)


def test_without_answers_the_error_names_the_authors_file(tmp_path):
    cifar(tmp_path)
    assert cifar10.find_human(tmp_path).status == "missing"
    with pytest.raises(DataError, match=cifar10.HUMAN) as raised:
        cifar10.load_human(tmp_path, check_sizes=False)
    assert "pip install" not in str(raised.value)


def test_answers_of_another_sha256_are_refused(tmp_path, monkeypatch):
    path = tmp_path / cifar10.HUMAN
    human(path, np.arange(20) % 10)
    with pytest.raises(DataError, match="SHA-256"):
        cifar10.read_human(path)
    digest = cifar10.answers_sha256(cifar10.read_human(path, check_sha256=False))
    monkeypatch.setattr(cifar10, "ANSWERS_SHA256", digest)
    cifar10.read_human(path)
    human(path, (np.arange(20) + 1) % 10)
    with pytest.raises(DataError, match="SHA-256"):
        cifar10.read_human(path)
