"""Own data as a table: one row per sample, features in columns, candidates in one column, separated by `|`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datasets.base import DataError, Dataset, check_finite
from datasets.user.rows import FORM, SEPARATOR, Rows, dataset_from, numbered, test_part, words_of

if TYPE_CHECKING:
    import numpy as np
    import pandas

SPECIAL = ("candidates", "label", "split", "id")  # columns that are no features


def read_table(path: Path) -> pandas.DataFrame:
    """A .csv or .parquet file as a frame; texts of the special columns stay as they are written."""
    import pandas

    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path)
        return pandas.read_csv(path, dtype=dict.fromkeys(SPECIAL, str), encoding="utf-8-sig")
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet needs the package pyarrow; install it (`pip install pyarrow`) or save a .csv."
        ) from None
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except Exception as error:  # of several libraries
        raise DataError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}.") from None


def features_of(where: str, frame: pandas.DataFrame) -> tuple[np.ndarray, tuple[str, ...]]:
    """(N, d) float64 and the columns' names; every column but the special ones."""
    import numpy as np
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns = [column for column in frame.columns if str(column).lower() not in SPECIAL]
    for column in columns:
        if not is_numeric_dtype(frame[column]) and not is_bool_dtype(frame[column]):
            raise DataError(
                f"{where}: the column `{column}` is not numeric; encode it as numbers or leave it out "
                f"(`{'`, `'.join(SPECIAL)}` are the columns that may hold text)."
            )
    if not columns:
        raise DataError(f"{where} has no feature column, {FORM}.")
    values = frame[columns].to_numpy(dtype=np.float64, na_value=np.nan)
    check_finite(where, values)
    return values, tuple(map(str, columns))


def texts(frame: pandas.DataFrame, column: str) -> list[str]:
    """A column as texts, empty where a value is missing; lists of names, as Parquet may have them, are joined."""
    return [text_of(value) for value in frame[column].tolist()]


def text_of(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # whole numbers of a column that has gaps
    if hasattr(value, "__iter__"):
        return SEPARATOR.join(text_of(part) for part in value)
    return "" if str(value) in ("<NA>", "NaT") else str(value)


def rows_of(where: str, frame: pandas.DataFrame, classes: str = "") -> Rows:
    """A frame with features and `candidates`, `label`, `split`, `id` as far as they are there."""
    frame = frame.rename(columns={c: str(c).lower() for c in frame.columns if str(c).lower() in SPECIAL})
    if "candidates" not in frame and "label" not in frame:
        raise DataError(f"{where} has no column `candidates`, {FORM}.")
    x, columns = features_of(where, frame)

    def row_name(row: int) -> str:
        return f"row {row + 1}"  # as a spreadsheet counts below its head

    sets = [words_of(text) for text in texts(frame, "candidates")] if "candidates" in frame else None
    truth = texts(frame, "label") if "label" in frame else [""] * len(frame)
    names, candidates, labels = numbered(where, sets, truth, classes, row_name)
    parts = test_part(where, texts(frame, "split"), row_name) if "split" in frame else None
    ids = tuple(texts(frame, "id")) if "id" in frame else tuple(str(row + 1) for row in range(len(frame)))
    twice = next((name for name in ids if ids.count(name) > 1), None) if len(set(ids)) < len(ids) else None
    if twice is not None:
        raise DataError(f"{where}: the id '{twice}' is there twice; a row may be in one part only.")
    return Rows(where, x, labels, names, candidates, parts, ids, columns, row_name)


def load_table(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
    classes: str = "",
) -> Dataset:
    """Without a column `split`, `test_share` of the rows with a label is held out by the seed."""
    return dataset_from(rows_of(str(path), read_table(path), classes), path.stem, seed, test_share, missing_truth)
