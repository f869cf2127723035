"""Tables: one row per sample, features in columns, candidates in one column, separated by `|`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from datasets.base import DataError, Dataset, check_finite
from datasets.user.rows import FORM, SEPARATOR, Rows, dataset_from, numbered, row_name, test_part, words_of

if TYPE_CHECKING:
    import numpy as np
    import pandas

    from datasets.base import Split

SPECIAL = ("candidates", "label", "split", "id")  # columns that are not features
ENCODING = "utf-8-sig"  # UTF-8, with the mark that spreadsheets put first or without


def delimiter_of(path: Path) -> str:
    """Return what separates the columns: a comma, or a semicolon or tab if the header has no comma."""
    with path.open(encoding=ENCODING) as stream:
        header = stream.readline()
    if not header:
        raise DataError(f"{path} is empty, {FORM}.")
    return next((sign for sign in ",;\t" if sign in header), ",")


def unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist.")
    if isinstance(error, UnicodeDecodeError):
        return DataError(f"{path} is not UTF-8 text; save it as UTF-8 (in a spreadsheet: CSV UTF-8).")
    return DataError(f"{path} cannot be read as a table: {str(error).splitlines()[0]}.")


def read_table(path: Path) -> pandas.DataFrame:
    """Read a .csv or .parquet file; the special columns are in lower case, and their texts as they are written."""
    import pandas

    try:
        if path.suffix == ".parquet":
            frame = pandas.read_parquet(path)
        else:
            types = dict.fromkeys(SPECIAL, str)
            frame = pandas.read_csv(path, sep=delimiter_of(path), dtype=types, encoding=ENCODING)
    except ImportError:
        raise DataError(f"{path}: reading Parquet needs the package pyarrow; install it or save a .csv.") from None
    except Exception as error:  # of several libraries
        raise unreadable(path, error) from None
    if frame.empty:
        raise DataError(f"{path} has no row, {FORM}.")
    return frame.rename(columns={c: str(c).lower() for c in frame.columns if str(c).lower() in SPECIAL})


def read_texts(path: Path, required: Sequence[str]) -> pandas.DataFrame:
    """Read a .csv file as texts, the names of its columns in lower case."""
    import pandas

    try:
        with path.open(newline="", encoding=ENCODING) as stream:
            lines = [line for line in csv.reader(stream, delimiter=delimiter_of(path)) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, error) from None
    columns = [name.strip().lower() for name in lines[0]] if lines else []
    for column in required:
        if column not in columns:
            raise DataError(f"{path} has no column `{column}`; it has {', '.join(columns) or 'none'}, {FORM}.")
    for row, line in enumerate(lines[1:]):
        if len(line) != len(columns):
            raise DataError(f"{path}: {row_name(row)} does not have {len(columns)} fields.")
    return pandas.DataFrame([[text.strip() for text in line] for line in lines[1:]], columns=columns, dtype=str)


def features_of(where: str, frame: pandas.DataFrame) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return all but the special columns as (N, d) float64, and their names."""
    import numpy as np
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    columns = [column for column in frame.columns if str(column).lower() not in SPECIAL]
    for column in columns:
        if not is_numeric_dtype(frame[column]) and not is_bool_dtype(frame[column]):
            raise DataError(f"{where}: the column `{column}` is not numeric{advice_on(frame[column].tolist())}")
    if not columns:
        raise DataError(f"{where} has no feature column, {FORM}.")
    values = frame[columns].to_numpy(dtype=np.float64, na_value=np.nan)
    names = tuple(map(str, columns))
    check_finite(where, values, names)
    return values, names


def advice_on(values: Sequence[Any]) -> str:
    """Return the first text of a column that is not a number, with its row, and what to do about it."""
    row, text = next(((k, v) for k, v in enumerate(values) if isinstance(v, str) and not is_number(v)), (0, ""))
    place = f" ({row_name(row)} has {text!r})" if text else ""
    if is_number(text.replace(",", ".")):
        return f"{place}; write numbers with a decimal point."
    special = "`, `".join(SPECIAL)
    return f"{place}; encode it as numbers or leave it out (`{special}` are the columns that may hold text)."


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def texts(frame: pandas.DataFrame, column: str) -> list[str]:
    """Return a column as texts, empty where a value is missing; lists of names, as Parquet may have them, are joined."""
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


def ids_of(frame: pandas.DataFrame) -> tuple[str, ...]:
    """Return the ids of the rows; numbers from 1 where the table has none."""
    return tuple(texts(frame, "id")) if "id" in frame else tuple(str(row + 1) for row in range(len(frame)))


def rows_of(
    where: str, frame: pandas.DataFrame, x: np.ndarray | Split, classes: str = "", columns: tuple[str, ...] = ()
) -> Rows:
    """Join inputs `x` with the columns `candidates`, `label`, `split`, `id` of a frame as far as they are there."""
    if "candidates" not in frame and "label" not in frame:
        raise DataError(f"{where} has no column `candidates`; it has {', '.join(map(str, frame.columns))}, {FORM}.")
    ids = ids_of(frame)
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if first.setdefault(name, row) != row:
            raise DataError(
                f"{where}: '{name}' is there twice, in row {first[name] + 1} and in row {row + 1}; once is enough."
            )
    sets = [words_of(text) for text in texts(frame, "candidates")] if "candidates" in frame else None
    truth = texts(frame, "label") if "label" in frame else [""] * len(frame)
    names, candidates, labels = numbered(where, sets, truth, classes, ids)
    parts = test_part(where, texts(frame, "split"), ids) if "split" in frame else None
    return Rows(where, x, labels, names, candidates, parts, ids, columns)


def load_table(
    path: Path,
    root: Path | None = None,
    seed: int = 0,
    missing_truth: Literal["refuse", "keep"] = "refuse",
    *,
    test_share: float = 0.2,
    classes: str = "",
) -> Dataset:
    """Load a table. Without a column `split`, `test_share` of the rows with a label is held out by the seed."""
    frame = read_table(path)
    x, columns = features_of(str(path), frame)
    return dataset_from(rows_of(str(path), frame, x, classes, columns), path.stem, seed, test_share, missing_truth)
