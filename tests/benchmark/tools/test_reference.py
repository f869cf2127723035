"""Reference runs: a compact copy of finished runs from which the same is made as from the runs themselves."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmark import store
from benchmark.tools import reference
from tests.support.fake_store import write_store

PROFILE = "quick"


def test_a_copy_holds_what_tables_and_curves_read(tmp_path: Path) -> None:
    results, folder = tmp_path / "results", tmp_path / "reference"
    write_store(results, profile=PROFILE, methods=["proden"], datasets=["glyphs"], seeds=[0, 1], candidates=False)
    assert reference.pack(results, [PROFILE], folder) == 2
    same = [column for column in store.runs(results).columns if column not in ("path",)]
    pd.testing.assert_frame_equal(store.runs(folder)[same], store.runs(results)[same])
    pd.testing.assert_frame_equal(store.load(folder), store.load(results))
    copied = [path.name for path in folder.rglob("*") if path.is_file()]
    assert sorted(set(copied)) == ["metrics.jsonl.gz", "run.json"]
    assert "host" not in (next(folder.rglob("run.json"))).read_text()


def test_a_damaged_copy_loses_its_epochs_and_says_so(tmp_path: Path, capfd) -> None:
    results, folder = tmp_path / "results", tmp_path / "reference"
    write_store(results, profile=PROFILE, methods=["proden"], datasets=["glyphs"], seeds=[0], candidates=False)
    reference.pack(results, [PROFILE], folder)
    packed = next(folder.rglob("metrics.jsonl.gz"))
    packed.write_bytes(packed.read_bytes()[:20])
    assert store.load(folder).empty and len(store.runs(folder)) == 1
    assert "damaged" in capfd.readouterr().err
