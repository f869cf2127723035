"""Rows that several people labelled: a folder with `answers.csv` (row, annotator, answer) and a table or `.npz` file.

The answers to a row become its candidate set: all of them, or those with at least `votes` votes. The truth may be outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from datasets.base import UNKNOWN, DataError, Dataset, plural
from datasets.candidates.votes import candidates_by_votes, check_votes
from datasets.user.npz import read_npz
from datasets.user.rows import FORM, SEPARATOR, dataset_from, row_name
from datasets.user.table import features_of, read_table, read_texts, rows_of, texts

ANSWERS = "answers.csv"
COLUMNS = ["row", "annotator", "answer"]
DATA = ("data.npz", "data.csv", "data.parquet")


def data_file(path: Path) -> Path:
    files = [path / name for name in DATA if (path / name).is_file()]
    if len(files) != 1:
        problem = f"holds {' and '.join(file.name for file in files)}" if files else "holds no rows"
        raise DataError(f"{path} {problem}; put one of {', '.join(DATA)} beside {ANSWERS}, {FORM}.")
    return files[0]


def load_crowd(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "keep",
    *,
    votes: int = 1,
    test_share: float = 0.2,
    classes: str = "",
) -> Dataset:
    """Load a folder. `row` of an answer is the `id` of its row, or its number from 0 where the data have no ids."""
    import numpy as np
    import pandas

    check_votes(str(path), votes)
    table, data = path / ANSWERS, data_file(path)
    answers = read_texts(table, COLUMNS)[COLUMNS]
    if answers.empty:
        raise DataError(f"{table} holds no answer.")
    blank = (answers == "").any(axis=1)
    if blank.any():
        raise DataError(f"{table}: {row_name(int(blank.argmax()))} lacks a row, an annotator or an answer.")
    columns: tuple[str, ...] = ()
    if data.suffix == ".npz":
        stored = read_npz(data)
        x, names, y = stored.x, stored.classes, stored.labels
        if names and y.max() >= len(names):
            raise DataError(f"{data}: `y` has the label {y.max()} for {plural(len(names), 'class name')}.")
        labels = ["" if label == UNKNOWN else names[label] if names else str(label) for label in y.tolist()]
        frame = pandas.DataFrame({"label": labels})
        if stored.parts is not None:
            frame["split"] = np.where(stored.parts, "test", "train")
        classes = classes or SEPARATOR.join(names)
    else:
        frame = read_table(data)
        x, columns = features_of(str(data), frame)
    frame["id"] = texts(frame, "id") if "id" in frame else [str(row) for row in range(len(frame))]
    strange = ~answers["row"].isin(frame["id"])
    if strange.any():
        row = int(strange.argmax())
        raise DataError(f"{table}: {row_name(row)} is about '{answers['row'][row]}', which {data} does not have.")
    answers = answers.drop_duplicates()  # who gives an answer twice has one vote
    counts = pandas.crosstab(answers["row"], answers["answer"])
    check_votes(str(table), votes, int(counts.to_numpy().max()))
    words = counts.columns.to_numpy()
    sets = dict(zip(counts.index, candidates_by_votes(counts.to_numpy(), votes), strict=True))
    frame["candidates"] = [SEPARATOR.join(words[sets[name]]) if name in sets else "" for name in frame["id"]]
    rows = rows_of(str(table), frame, x, classes, columns)
    return dataset_from(rows, path.resolve().name, seed, test_share, missing_truth)
