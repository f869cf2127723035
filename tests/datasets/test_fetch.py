"""Fetching data against a real HTTP server on this machine: broken transfers, wrong hashes, hostile archives."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from datasets.base import Availability, DataError
from datasets.storage import fetch as fetching
from datasets.storage.fetch import ARCHIVES, Archive, extract, fetch


class Server:
    """Serves bytes by path and can misbehave: break off after some bytes, ignore ranges, answer with an error."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.break_after: list[int] = []  # per request: send so many bytes, then hang up
        self.status: list[int] = []  # per request: answer with this error
        self.ranges = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/{path}"

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        asked = handler.headers.get("Range")
        self.requests.append((handler.path, asked))
        content = self.files.get(handler.path.lstrip("/"))
        if self.status or content is None:
            handler.send_error(self.status.pop(0) if self.status else 404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.ranges else 0
        if start >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        end = start + self.break_after.pop(0) if self.break_after else None
        handler.wfile.write(content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def tar(*entries: tuple[str, bytes] | tarfile.TarInfo, mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(None, mode, buffer) as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                archive.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()


GOOD = tar(("top/images/a.jpg", os.urandom(200_000)), ("top/list.txt", b"a.jpg\n"))


def check(root: Path) -> Availability:
    """Stands for a dataset's own test of completeness."""
    if (root / "cub200" / "top" / "list.txt").is_file() and (root / "cub200" / "top" / "images" / "a.jpg").is_file():
        return Availability("found", "", "")
    return Availability("incomplete", f"{root / 'cub200'} lacks top/list.txt", "fetch it")


def run(root: Path, *archives: Archive) -> Path:
    return fetch("cub200", root, archives, progress=lambda *_: None, check=check, pause=0.0)


def archive(server: Server, content: bytes = GOOD, **changes) -> Archive:
    server.files["set.tgz"] = content
    values = {"sha256": hashlib.sha256(GOOD).hexdigest()} | changes
    return Archive("set.tgz", (server.url("set.tgz"),), **values)


def leftovers(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".fetch-cub200.lock"}


def test_a_set_is_fetched_verified_and_moved_into_place(tmp_path, server):
    seen = []
    fetch("cub200", tmp_path, [archive(server)], progress=lambda *args: seen.append(args), check=check)
    assert check(tmp_path).status == "found" and leftovers(tmp_path) == {"cub200"}
    assert seen[-1] == ("set.tgz", len(GOOD), len(GOOD))
    run(tmp_path, archive(server))
    assert len(server.requests) == 1  # what is there is not fetched again


def test_a_broken_transfer_is_taken_up_where_it_stopped(tmp_path, server):
    server.break_after = [50_000, 70_000]
    run(tmp_path, archive(server))
    assert check(tmp_path).status == "found"
    assert [asked for _, asked in server.requests] == [None, "bytes=50000-", "bytes=120000-"]


def test_a_command_run_again_goes_on_with_the_earlier_part(tmp_path, server):
    wanted = archive(server)
    server.break_after = [90_000, 0, 0, 0, 0, 0]
    with pytest.raises(DataError, match=r"the transfer broke off.*run the command again"):
        run(tmp_path, wanted)
    run(tmp_path, wanted)
    assert server.requests[-1][1] == "bytes=90000-" and check(tmp_path).status == "found"


def test_a_server_without_ranges_is_read_from_the_start(tmp_path, server):
    server.ranges, server.break_after = False, [50_000]
    run(tmp_path, archive(server))
    assert check(tmp_path).status == "found"


def test_a_stale_part_that_does_not_fit_is_thrown_away_once(tmp_path, server):
    work = tmp_path / ".fetch-cub200"
    for stale in (b"x" * 1000, b"x" * len(GOOD), b"x" * (len(GOOD) + 5)):
        work.mkdir()
        (work / "set.tgz.part").write_bytes(stale)
        run(tmp_path, archive(server))
        assert check(tmp_path).status == "found"
        (tmp_path / "cub200").rename(tmp_path / f"done-{len(stale)}")


def test_a_passing_server_error_is_tried_again_and_a_final_one_is_not(tmp_path, server):
    server.status = [503, 429]
    run(tmp_path, archive(server))
    assert len(server.requests) == 3
    (tmp_path / "cub200").rename(tmp_path / "done")
    server.status, server.requests = [403], []
    with pytest.raises(DataError, match="the server answers 403"):
        run(tmp_path, archive(server))
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_wrong_hash_is_refused_before_unpacking(tmp_path, server, kind):
    hashes = {"sha256": "", "md5": ""} | {kind: "0" * 32}
    with pytest.raises(DataError, match=f"has {kind} .*, not the published 000000000000…"):
        run(tmp_path, archive(server, **hashes))
    assert (
        not (tmp_path / "cub200").exists() and not list(tmp_path.rglob("a.jpg")) and not list(tmp_path.rglob("*.part"))
    )


def test_the_next_source_is_asked_when_the_first_fails(tmp_path, server):
    wanted = archive(server)
    server.files["wrong.tgz"] = b"not it"
    urls = (server.url("gone.tgz"), server.url("wrong.tgz"), *wanted.urls)
    run(tmp_path, Archive(wanted.file, urls, sha256=wanted.sha256))
    assert check(tmp_path).status == "found"


def test_no_network_is_one_clear_sentence(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(
        DataError, match=r"set\.tgz could not be downloaded \(127.0.0.1:\d+: no connection .*docs/data.md"
    ):
        run(tmp_path, Archive("set.tgz", (f"http://127.0.0.1:{port}/set.tgz",)))


def test_a_truncated_archive_is_told(tmp_path, server):
    for cut in (GOOD[:100_000], tar(("top/images/a.jpg", b"x" * 50_000), mode="w")[:20_000]):
        with pytest.raises(DataError, match=r"set\.tgz is damaged or cut off"):
            run(tmp_path, archive(server, cut, sha256=""))
        assert not (tmp_path / "cub200").exists()
        (tmp_path / ".fetch-cub200" / "set.tgz").unlink()


def test_what_is_unpacked_but_incomplete_never_reaches_the_data_folder(tmp_path, server):
    half = tar(("top/images/a.jpg", b"x"))
    with pytest.raises(DataError, match=f"the unpacked set is incomplete: {tmp_path}/cub200 lacks top/list.txt"):
        run(tmp_path, archive(server, half, sha256=""))
    assert not (tmp_path / "cub200").exists()


def test_an_incomplete_folder_in_the_way_is_set_aside(tmp_path, server):
    (tmp_path / "cub200" / "top").mkdir(parents=True)
    (tmp_path / "cub200" / "top" / "mine.txt").write_text("kept")
    run(tmp_path, archive(server))
    assert check(tmp_path).status == "found"
    assert (tmp_path / "cub200" / "top.old1" / "mine.txt").read_text() == "kept"


def test_an_archive_put_there_by_hand_is_verified_and_used(tmp_path):
    (tmp_path / "cub200").mkdir()
    placed = tmp_path / "cub200" / "set.tgz"
    placed.write_bytes(GOOD)
    with pytest.raises(DataError, match=f"{placed} has sha256 .*not the published"):
        run(tmp_path, Archive("set.tgz", sha256="1" * 64))
    run(tmp_path, Archive("set.tgz", sha256=hashlib.sha256(GOOD).hexdigest()))
    assert check(tmp_path).status == "found" and placed.exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cars196", r"no longer provides.*cars_test_annos_withlabels\.mat into .*cars196"),
        ("malagasy", "cannot be downloaded by this command; unpack Malagasy from https://palm"),
        ("nonsense", "Unknown dataset"),
    ],
)
def test_a_set_without_a_download_says_where_it_comes_from(tmp_path, name, message):
    with pytest.raises(DataError, match=message):
        fetch(name, tmp_path)


def test_every_archive_of_the_table_has_a_published_hash():
    for archives in ARCHIVES.values():
        for entry in archives:
            listed = entry.listing and len(entry.listing.rpartition("/")[2]) == 40  # of a commit, and it has the hash
            assert listed or len(entry.sha256) == 64 or len(entry.md5) == 32 or len(entry.git_blob) == 40
            assert entry.origin


# Hostile archives ---------------------------------------------------------------------------------------------------


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.devmajor, info.devminor = kind, 1, 3
    return info


@pytest.mark.parametrize(
    "entries",
    [
        [("../out.txt", b"x")],
        [("top/../../out.txt", b"x")],
        [("top/../out.txt", b"x")],
        [("/candid-out.txt", b"x")],
        [("..\\out.txt", b"x")],
        [link("top/l", "../../out")],
        [link("top/l", "/etc")],
        [link("l", "..")],
        [link("top/h", "../out.txt", tarfile.LNKTYPE)],
        [link("top/h", "/etc/passwd", tarfile.LNKTYPE)],
        [special("top/null", tarfile.CHRTYPE)],
        [special("top/disk", tarfile.BLKTYPE)],
        [special("top/pipe", tarfile.FIFOTYPE)],
    ],
)
def test_a_hostile_tar_is_refused_and_nothing_lands_outside(tmp_path, server, entries):
    root = tmp_path / "data"
    content = tar(("top/list.txt", b"a"), *entries)
    with pytest.raises(DataError, match=r"set\.tgz holds .* it was not unpacked"):
        run(root, archive(server, content, sha256=""))
    assert [p.name for p in tmp_path.iterdir()] == ["data"] and not (root / "cub200").exists()
    assert not Path("/candid-out.txt").exists()


def test_links_that_stay_inside_are_left_out_and_never_written_through(tmp_path):
    (tmp_path / "a.tar").write_bytes(
        tar(link("top/l", "other"), ("top/l/x.txt", b"x"), link("h", "top", tarfile.LNKTYPE))
    )
    extract(tmp_path / "a.tar", tmp_path)
    assert not (tmp_path / "top" / "l").is_symlink() and (tmp_path / "top" / "l" / "x.txt").read_bytes() == b"x"
    assert not (tmp_path / "h").exists()


def test_what_is_no_tar_file_or_too_large_for_the_disk_is_one_sentence(tmp_path, monkeypatch):
    path, inside = tmp_path / "a.tar", tmp_path / "in"
    inside.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("top/a.txt", "good")
    with pytest.raises(DataError, match=r"^a\.tar is damaged or cut off: [^\n]*\.$"):
        extract(path, inside)
    path.write_bytes(tar(("top/a.txt", b"x" * 2000)))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1999))
    with pytest.raises(DataError, match=r"a\.tar needs more disk space"):
        extract(path, inside)
    monkeypatch.delattr("tarfile.data_filter")
    with pytest.raises(DataError, match=r"a\.tar cannot be unpacked safely by this Python; version 3\.11\.4"):
        extract(path, inside)
    assert not list(inside.iterdir())


def test_files_that_the_archive_locks_can_be_read_and_replaced(tmp_path):
    locked = tarfile.TarInfo("top/a.txt")
    locked.mode, locked.uid, locked.gid = 0o000, 0, 0
    (tmp_path / "a.tar").write_bytes(tar(locked, ("top/b.txt", b"x")))
    extract(tmp_path / "a.tar", tmp_path)
    assert (tmp_path / "top" / "a.txt").stat().st_mode & 0o600 == 0o600


def git_id(content: bytes) -> str:
    """Return what `git hash-object` prints."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def listed(server: Server, tree: object) -> Archive:
    server.files["tree"] = json.dumps(tree).encode()
    return Archive("fgnet.mat", (server.url("raw/"),), listing=server.url("tree"), unpack=False)


def test_a_commit_s_list_names_the_file_and_verifies_it(server, tmp_path):
    content = b"M" * 500
    server.files["raw/FG-NET.mat"] = content
    entry = {"path": "FG-NET.mat", "sha": git_id(content), "size": len(content)}
    archive = listed(server, {"tree": [{"path": "README.md", "sha": "0" * 40, "size": 3}, entry]})
    fetch("fgnet", tmp_path, [archive], pause=0)
    assert (tmp_path / "fgnet" / "fgnet.mat").read_bytes() == content
    other = listed(server, {"tree": [entry | {"sha": git_id(b"other")}]})
    with pytest.raises(DataError, match="the file has git blob"):
        fetch("fgnet", tmp_path / "again", [other], pause=0)
    assert not (tmp_path / "again" / "fgnet").exists()


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"tree": []}, "it does not name fgnet.mat"),
        ({"message": "Not Found"}, "it is not a list of files"),
        ({"tree": [3]}, "it is not a list of files"),
    ],
)
def test_a_list_without_the_file_is_one_sentence(server, tmp_path, tree, reason):
    with pytest.raises(DataError, match=f"fgnet: the list of files at .* could not be used .{reason}.; run"):
        fetch("fgnet", tmp_path, [listed(server, tree)], pause=0)


def test_the_terms_of_a_table_are_said_before_the_download(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fetching, "_obtain", lambda *_: (_ for _ in ()).throw(DataError("no network here")))
    with pytest.raises(DataError, match="no network here"):
        fetch("lost", tmp_path)
    assert "academic use" in capsys.readouterr().err
