"""Reference runs: a compact copy of finished runs from which the same is made as from the runs themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmark import store
from benchmark.errors import CandidError
from benchmark.tools import reference
from tests.support.fake_store import write_store

PROFILE = "quick"


def folders(tmp_path: Path, seeds: tuple[int, ...] = (0, 1)) -> tuple[Path, Path]:
    results, folder = tmp_path / "results", tmp_path / "reference"
    write_store(results, profile=PROFILE, methods=["proden"], datasets=["digits"], seeds=seeds)
    return results, folder


def test_a_copy_holds_what_tables_and_curves_read(tmp_path: Path) -> None:
    results, folder = folders(tmp_path)
    assert reference.pack(results, [PROFILE], folder) == 2
    ours, theirs = (store.runs(place).set_index("identity").sort_index() for place in (folder, results))
    same = [column for column in ours.columns if column != "path"]
    pd.testing.assert_frame_equal(ours[same], theirs[same])
    copied, original = (store.load(place).sort_values(["seed", "epoch"]) for place in (folder, results))
    np.testing.assert_allclose(copied["test_accuracy"], original["test_accuracy"], rtol=1e-5)
    assert len(copied) == len(original)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == [store.PACKED]
    assert store.predictions(ours["path"].iloc[0]) is None
    text = gzip.decompress(next(folder.rglob(store.PACKED)).read_bytes()).decode()
    assert '"host"' not in text and str(tmp_path) not in text


def test_packing_again_adds_and_replaces_and_gives_the_same_bytes(tmp_path: Path) -> None:
    results, folder = folders(tmp_path)
    reference.pack(results, [PROFILE], folder)
    before = next(folder.rglob(store.PACKED)).read_bytes()
    reference.pack(results, [PROFILE], folder)
    assert next(folder.rglob(store.PACKED)).read_bytes() == before
    write_store(results, profile=PROFILE, methods=["cc"], datasets=["digits"], seeds=[0])
    reference.pack(results, [PROFILE], folder)
    assert sorted(store.runs(folder)["method"]) == ["cc", "proden", "proden"]
    with pytest.raises(CandidError, match="no finished run of profile paper"):
        reference.pack(results, ["paper"], folder)


def test_a_damaged_copy_loses_its_runs_and_says_so(tmp_path: Path, capfd) -> None:
    results, folder = folders(tmp_path)
    reference.pack(results, [PROFILE], folder)
    packed = next(folder.rglob(store.PACKED))
    lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
    packed.write_bytes(gzip.compress(b"".join([lines[0].replace(b'"done"', b'"gone"'), lines[1], lines[2], b"[{}]\n"])))
    assert len(store.runs(folder)) == 1 and store.load(folder).empty
    message = capfd.readouterr().err
    assert "run 1 is damaged and left out" in message and "its epochs in" in message
    packed.write_bytes(packed.read_bytes()[:20])
    assert store.load(folder).empty and store.runs(folder).empty
    assert "damaged" in capfd.readouterr().err
