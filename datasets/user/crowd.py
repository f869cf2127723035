"""Own data that several people labelled: a folder with `answers.csv` (row, annotator, answer) and `data.npz` or `data.csv`.

The answers to a row become its candidate set: all of them, or those with at least `votes` votes. The truth may be outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datasets.base import UNKNOWN, DataError, Dataset, plural
from datasets.user.npz import arrays_of, labels_of
from datasets.user.rows import FORM, SEPARATOR, Rows, dataset_from, inputs_of, numbered, test_part
from datasets.user.table import SPECIAL, features_of, read_table, texts

if TYPE_CHECKING:
    import numpy as np
    import pandas

ANSWERS = "answers.csv"
COLUMNS = ["row", "annotator", "answer"]
DATA = ("data.npz", "data.csv", "data.parquet")


def voted(answers: pandas.DataFrame, votes: int = 1) -> dict[Any, set[Any]]:
    """Candidates by row: the answers with at least `votes` votes; where none has so many, those with the most.

    `answers` has the columns row, annotator and answer. Who gives an answer twice to one row has one vote.
    """
    counts = answers.drop_duplicates(COLUMNS).groupby(["row", "answer"], sort=False).size().reset_index(name="votes")
    most = counts.groupby("row", sort=False)["votes"].transform("max")
    kept = counts[counts["votes"] >= most.clip(upper=votes)]
    return kept.groupby("row", sort=False)["answer"].agg(set).to_dict()


def check_votes(name: str, votes: int, most: int | None = None) -> None:
    """`most` is what an answer has at most, once that is known: beyond it every number would mean the same."""
    if votes < 1 or (most is not None and votes > most):
        end = "or more" if most is None else f"to {most} (no answer has more)"
        raise DataError(f"{name}: votes={votes} is not possible; take 1 (every answer counts) {end}.")


def read_answers(path: Path) -> pandas.DataFrame:
    """The table of answers, as texts."""
    import pandas

    try:
        frame = pandas.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except Exception as error:  # pandas raises its parser's
        raise DataError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}.") from None
    frame = frame.rename(columns=lambda name: str(name).strip().lower())
    lacking = [column for column in COLUMNS if column not in frame]
    if lacking:
        raise DataError(f"{path} has no column `{lacking[0]}`; {', '.join(COLUMNS)} are needed, {FORM}.")
    frame = frame[COLUMNS].apply(lambda column: column.str.strip())
    if frame.empty:
        raise DataError(f"{path} holds no answer.")
    blank = (frame == "").any(axis=1)
    if blank.any():
        raise DataError(f"{path}: line {blank.tolist().index(True) + 2} lacks a row, an annotator or an answer.")
    return frame


@dataclass(frozen=True)
class Told:
    """The rows that people were shown, as far as they are known."""

    x: np.ndarray
    truth: list[str]  # class names, empty where nobody knows
    ids: list[str]  # by which the answers name them
    parts: np.ndarray | None  # (N,) bool, True for test rows
    columns: tuple[str, ...] = ()
    classes: str = ""


def data_file(path: Path) -> Path:
    found = [path / name for name in DATA if (path / name).is_file()]
    if len(found) != 1:
        problem = f"holds {' and '.join(file.name for file in found)}" if found else "holds no rows"
        raise DataError(f"{path} {problem}; put one of {', '.join(DATA)} beside {ANSWERS}, {FORM}.")
    return found[0]


def _from_npz(path: Path) -> Told:
    import numpy as np

    arrays = arrays_of(path)
    x = inputs_of(f"{path}: `x`", arrays["x"])
    y, parts, ids = labels_of(path, "y", arrays.get("y"), len(x)), None, list(map(str, range(len(x))))
    if "x_test" in arrays:
        test = inputs_of(f"{path}: `x_test`", arrays["x_test"])
        if test.shape[1:] != x.shape[1:]:
            raise DataError(f"{path}: a row of `x` has shape {x.shape[1:]}, one of `x_test` {test.shape[1:]}.")
        y = np.concatenate([y, labels_of(path, "y_test", arrays.get("y_test"), len(test))])
        parts = np.arange(len(y)) >= len(x)
        ids += [f"test {row}" for row in range(len(test))]
        x = np.concatenate([x, test])
    names = list(map(str, arrays["class_names"].tolist())) if "class_names" in arrays else []
    if names and y.max() >= len(names):
        raise DataError(f"{path}: `y` has the label {y.max()} for {plural(len(names), 'class name')}.")
    truth = ["" if label == UNKNOWN else names[label] if names else str(label) for label in y.tolist()]
    return Told(x, truth, ids, parts, classes=SEPARATOR.join(names))


def _from_table(path: Path) -> Told:
    frame = read_table(path)
    frame = frame.rename(columns={c: str(c).lower() for c in frame.columns if str(c).lower() in SPECIAL})
    x, columns = features_of(str(path), frame)
    truth = texts(frame, "label") if "label" in frame else [""] * len(frame)
    ids = texts(frame, "id") if "id" in frame else list(map(str, range(len(frame))))
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise DataError(f"{path}: the id '{twice}' is there twice.")
    parts = test_part(str(path), texts(frame, "split"), "row {}".format) if "split" in frame else None
    return Told(x, truth, ids, parts, columns)


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
    """`row` of an answer is the `id` of its row in the data, or its number from 0 where the data have no ids."""
    check_votes(str(path), votes)
    table, data = path / ANSWERS, data_file(path)
    answers = read_answers(table)
    told = _from_npz(data) if data.suffix == ".npz" else _from_table(data)
    strange = ~answers["row"].isin(told.ids)
    if strange.any():
        line = strange.tolist().index(True)
        raise DataError(f"{table}: line {line + 2} speaks of row '{answers['row'][line]}', which {data} does not have.")
    check_votes(str(table), votes, int(answers.drop_duplicates(COLUMNS).value_counts(["row", "answer"]).max()))
    sets = voted(answers, votes)

    def row_name(row: int) -> str:
        return f"row '{told.ids[row]}'"

    by_row = [sets.get(name, set()) for name in told.ids]
    names, candidates, labels = numbered(str(table), by_row, told.truth, classes or told.classes, row_name)
    rows = Rows(
        str(table), told.x, labels, names, candidates, told.parts, tuple(told.ids), told.columns, row_name=row_name
    )
    return dataset_from(rows, path.resolve().name, seed, test_share, missing_truth)
