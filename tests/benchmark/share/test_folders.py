"""compare, merge and bundle on results folders as real runs leave them."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmark import store
from benchmark.cli.main import main
from benchmark.files import without_paths
from benchmark.share.archive import misfits, opened
from benchmark.tools.reference import pack
from tests.support.fake_store import write_store

METHODS = ["cel", "proden"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    write_store(folder, profile="quick", methods=METHODS, datasets=["fashion"])
    return folder


def documents(folder: Path, method: str = "*") -> list[Path]:
    return sorted(folder.glob(f"runs/quick/fashion/{method}/*/run.json"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_compare_pairs_by_seed_and_tells_equal_runs_from_different_ones(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "b"
    shutil.copytree(results, other)
    for path, gain in zip(documents(other, "proden"), (1.0, 1.1, 0.9), strict=True):
        summary = json.loads(path.read_text())["summary"]
        edit(path, summary=summary | {"accuracy": summary["accuracy"] + gain})
    out = tmp_path / "side-by-side"
    assert main(["compare", str(results), str(other), "--out", str(out)]) == 0
    table = json.loads(out.with_suffix(".json").read_text())
    cel, proden = table["data"]
    assert (cel["label"], cel["same_numbers"], cel["mean_difference"]) == ("cel", 3, 0.0)
    assert (proden["same_identity"], proden["same_numbers"], proden["outcome_holm"]) == (3, 0, 1)
    assert proden["mean_difference"] == pytest.approx(1.0) and proden["p"] == pytest.approx(0.00331, abs=1e-4)
    shown = capsys.readouterr().out
    assert "runs of the same identity have other numbers in A and B: quick fashion proden" in shown


def test_merge_copies_what_is_missing_and_names_every_conflict(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "into"
    write_store(into, profile="quick", methods=["cel"], datasets=["fashion"], seeds=(0, 1))
    first, second = documents(into)
    edit(first, weights_sha256="0" * 64)
    edit(second, status="interrupted")
    before = {path: path.read_bytes() for path in into.rglob("*") if path.is_file()}
    forged = documents(results, "proden")[2]
    edit(forged, config=json.loads(forged.read_text())["config"] | {"seed": 7})
    assert main(["merge", str(results), str(into)]) == 3
    output = capsys.readouterr()
    assert "quick fashion cel seed 0: done in both with other numbers" in output.err
    assert "quick fashion cel seed 1: interrupted there" in output.err
    assert "quick fashion proden seed 2: its configuration is not the one" in output.err
    assert "Copied 3 runs and 1 candidate file into" in output.out
    assert all(path.read_bytes() == content for path, content in before.items())
    assert set(store.runs(into)["identity"]) < set(store.runs(results)["identity"])
    assert len(store.runs(into)) == 5 and not list(into.rglob(".*"))


def test_merge_refuses_runs_whose_candidate_set_is_another_one_there(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "into"
    write_store(into, profile="quick", methods=["cel"], datasets=["glyphs"])
    mine, theirs = sorted(results.glob("candidates/fashion/*.npz"))[:2]
    place = into / mine.relative_to(results)
    place.parent.mkdir(parents=True)
    shutil.copy(theirs, place)  # under the name of another seed's: the same request, other labels
    assert main(["merge", str(results), str(into)]) == 3
    assert capsys.readouterr().err.count("made on another machine); it is not taken") == 2
    assert not list(into.glob("runs/quick/fashion/*/seed0-*"))


def test_a_bundle_has_no_paths_and_no_hosts_and_is_read_like_a_folder(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sitting = {"typed": "./reproduce.sh run --results /home/zoe/secret/results --plugin ~/x/mine.py", "host": "box"}
    for path in documents(results):
        edit(path, sittings=[sitting], reason="could not read '/home/zoe/data.bin'")
        (path.parent / "log.txt").write_text("/home/zoe")
        (path.parent / "checkpoint.pt").write_bytes(b"x")
    edit(documents(results, "cel")[0], status="failed")
    bundle, again, hosts = tmp_path / "b.tar.gz", tmp_path / "again.tar.gz", tmp_path / "hosts.tar.gz"
    assert main(["bundle", "--results", str(results), "--out", str(bundle)]) == 3  # the failed run is left out
    assert "failed, not done" in capsys.readouterr().err
    assert main(["bundle", "--results", str(results), "--out", str(again)]) == 3
    assert bundle.read_bytes() == again.read_bytes()
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        text = b"".join(archive.extractfile(n).read() for n in names if n.endswith("json"))  # type: ignore[union-attr]
    assert not [name for name in names if name.endswith(("log.txt", ".pt", "lock"))] and len(names) == 5 * 2 + 3 + 1
    assert b"/home" not in text and b"zoe" not in text and b"box" not in text and b'"pid"' not in text
    assert b"--results results --plugin mine.py" in text
    assert main(["bundle", "--results", str(results), "--out", str(hosts), "--hosts"]) == 3
    with opened(bundle) as folder:
        assert len(store.runs(folder)) == 5
    words = ["--methods", "proden", "--datasets", "fashion", "--profile", "quick", "--device", "cpu"]
    assert main(["table2", *words, "--results", str(bundle)]) == 2
    assert "add --no-run" in capsys.readouterr().err
    assert main(["table2", *words, "--results", str(bundle), "--no-run"]) == 0
    assert list((tmp_path / "b" / "tables" / "quick").glob("table2*.csv"))
    assert main(["run", *words, "--results", str(bundle)]) == 2
    assert main(["compare", str(bundle), str(hosts)]) == 0


def test_paths_lose_all_but_their_last_part() -> None:
    told = "no /a/b/c.npz, '/home/x y/z', /opt and ~/d/e: https://host/p, alpha=0.5/0.2 or ../up / --out=/tmp/z/"
    kept = "no c.npz, 'z', opt and e: https://host/p, alpha=0.5/0.2 or ../up / --out=z"
    assert without_paths(told) == kept


def packed(path: Path, *entries: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"{}"[: entry.size]))
    return path


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    return info


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ([entry("../outside", size=2)], "leads outside its folder"),
        ([entry("/etc/x", size=2)], "leads outside its folder"),
        ([entry("runs/x", type=tarfile.SYMTYPE, linkname="../../etc")], "leads outside its folder"),
        ([entry("pipe", type=tarfile.FIFOTYPE)], "is a device or pipe"),
        ([entry("runs/x", size=2)], "has no bundle.json"),
        ([entry("bundle.json", size=2)], "bundle.json is damaged"),
    ],
)
def test_a_hostile_or_foreign_archive_is_refused(
    results: Path, tmp_path: Path, entries: list[tarfile.TarInfo], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = packed(tmp_path / "x.tar.gz", *entries)
    before = sorted(tmp_path.rglob("*"))
    for words in (["compare", str(bundle), str(results)], ["merge", str(bundle), str(results)]):
        assert main(words) == 1
        assert sentence in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_changed_or_cut_bundle_is_refused(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "b.tar.gz"
    assert main(["bundle", "--results", str(results), "--out", str(bundle)]) == 0
    with opened(bundle) as folder:
        assert not misfits(folder)
        documents(folder)[0].write_text("{}")
        (changed,) = misfits(folder)
    assert changed.endswith("run.json is not the file that was packed")
    bundle.write_bytes(bundle.read_bytes()[:-200])
    assert main(["compare", str(bundle), str(results)]) == 1
    assert "damaged or cut off" in capsys.readouterr().err


def test_runs_packed_into_one_file_are_bundled_merged_and_compared(results: Path, tmp_path: Path) -> None:
    reference, into, bundle = tmp_path / "reference", tmp_path / "into", tmp_path / "b.tar.gz"
    pack(results, ["quick"], reference)
    assert main(["merge", str(reference), str(into)]) == 3  # the candidate sets are not packed, which is said
    assert main(["bundle", "--results", str(reference), "--out", str(bundle)]) == 0
    assert main(["compare", str(into), str(bundle), "--out", str(tmp_path / "c")]) == 0
    table = json.loads((tmp_path / "c.json").read_text())
    assert [record["same_numbers"] for record in table["data"]] == [3, 3]
    assert len(store.load(into)) == len(store.load(reference)) == len(store.load(results))
