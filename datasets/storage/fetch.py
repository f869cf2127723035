"""Download a dataset: fetch, resume, verify, unpack safely, check, and only then move into place.

Everything happens in `<root>/.fetch-<name>/`; `<root>/<name>` changes by rename at the end, so a command that is killed
leaves either the old state or the new one, and downloads where they stopped when it is run again.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets.base import Availability, DataError
from datasets.registry import get
from datasets.storage.archives import ARCHIVES, SAME_FILES, Archive
from datasets.storage.files import locked

CHUNK = 1 << 20
ATTEMPTS = 5  # in a row without a single new byte
TIMEOUT = 30.0  # seconds
PAGES = "see docs/data.md"

Progress = Callable[[str, int, "int | None"], None]  # what, done, total (bytes)
Check = Callable[[Path], Availability]


def show(what: str, size: int, total: int | None) -> None:
    """Print progress on one line of a terminal; print nothing to a log."""
    if sys.stderr.isatty():
        of = f" of {total / 1e6:,.1f}" if total else ""
        print(f"\r{what}: {size / 1e6:,.1f}{of} MB", end="\n" if size == total else "", file=sys.stderr, flush=True)


def fetch(
    name: str,
    root: Path,
    sources: Sequence[Archive] | None = None,
    progress: Progress = show,
    check: Check | None = None,
    pause: float = 1.0,
) -> Path:
    """Bring a dataset into `<root>/<name>` and return that folder.

    `sources` replaces the table of archives (mirrors); `check` replaces the dataset's own test for completeness.
    `pause` is the wait in seconds before an interrupted transfer is resumed, doubled each time.
    """
    root, name = Path(root), SAME_FILES.get(name, name)
    source = get(name)
    check = check or source.find
    target = root / name
    here = check(root)
    if here.status == "found":
        return target
    archives = ARCHIVES.get(name, ()) if sources is None else tuple(sources)
    if not archives:
        advice = here.how or PAGES
        raise DataError(f"{name} cannot be downloaded by this command; {advice}.")
    for terms in dict.fromkeys(archive.terms for archive in archives if archive.terms):
        print(f"{name}: {terms}.", file=sys.stderr)
    work = root / f".fetch-{name}"
    try:
        with locked(root / f".fetch-{name}.lock"):
            files = [_obtain(name, archive, target, work, progress, pause) for archive in archives]
            unpack_folder = work / "unpacked"
            shutil.rmtree(unpack_folder, ignore_errors=True)
            for archive, file in zip(archives, files, strict=True):
                _unpack(file, archive, unpack_folder / name / archive.folder)
            result = check(unpack_folder)
            if result.status != "found":
                detail = result.detail.replace(str(unpack_folder), str(root))
                raise DataError(f"{name}: the unpacked set is {result.status}: {detail.rstrip('.')}.")
            _move_in(unpack_folder / name, target)
            shutil.rmtree(work)
    except OSError as error:
        raise DataError(f"{name}: {error.filename or root} cannot be written: {error.strerror or error}.") from None
    return target


def _obtain(name: str, archive: Archive, target: Path, work: Path, progress: Progress, pause: float) -> Path:
    """Return the verified file: the user's, one from an earlier attempt, or a fresh download."""
    for file in (target / archive.file, target.parent / archive.file, work / archive.file):
        if file.is_file():
            problem = _mismatch(file, archive)
            if not problem:
                return file
            if file.parent != work:
                raise DataError(f"{file} {problem}; remove it, or unpack it yourself if you trust it.")
            file.unlink()
    if not archive.urls:
        names = ", ".join(a.file for a in ARCHIVES.get(name, (archive,)))
        raise DataError(
            f"{name}: the publisher's server no longer provides {archive.file}; put {names} into {target} and run this "
            f"command again, or put the unpacked folders there, {PAGES}."
        )
    work.mkdir(parents=True, exist_ok=True)
    archive = _as_listed(name, archive, target, work, progress, pause) if archive.listing else archive
    _check_space(work, archive)
    part = work / (archive.file + ".part")
    problems: list[str] = []
    for url in archive.urls:
        if part.exists() and problems and not (archive.sha256 or archive.md5 or archive.git_blob):
            part.unlink()  # without a hash, parts of two sources cannot be told apart
        went_on = part.exists()
        problem = _attempt(url, part, archive, progress, pause)
        if problem and went_on and not part.exists():  # the old part was damaged: start again
            problem = _attempt(url, part, archive, progress, pause)
        if not problem:
            os.replace(part, work / archive.file)
            return work / archive.file
        problems.append(f"{urllib.parse.urlsplit(url).netloc}: {problem}")
    raise DataError(
        f"{name}: {archive.file} could not be downloaded ({'; '.join(problems)}); run the command again to resume, "
        f"or put the file into {target}, {PAGES}."
    )


def _attempt(url: str, part: Path, archive: Archive, progress: Progress, pause: float) -> str:
    """Download and verify; return the reason of a failure. A file with another hash is deleted."""
    problem = _download(url, part, archive, progress, pause)
    if not problem:
        problem = _mismatch(part, archive)
        if problem:
            part.unlink()
            problem = f"the file {problem}"
    return problem


def _as_listed(name: str, archive: Archive, target: Path, work: Path, progress: Progress, pause: float) -> Archive:
    """Return the archive with address, size and git_blob from its commit's list of files."""
    part = work / "listing.json"
    part.unlink(missing_ok=True)
    reason = _download(archive.listing, part, archive, progress, pause)
    if not reason:
        try:
            entries: list[dict[str, Any]] = json.loads(part.read_text(encoding="utf-8"))["tree"]
            entry = next(e for e in entries if _letters(e["path"]) == _letters(archive.file))
            url = archive.urls[0] + urllib.parse.quote(entry["path"])
            return replace(archive, urls=(url,), git_blob=entry["sha"], size=entry["size"])
        except StopIteration:
            reason = f"it does not name {archive.file}"
        except (ValueError, KeyError, TypeError):
            reason = "it is not a list of files"
    where = urllib.parse.urlsplit(archive.listing).netloc
    raise DataError(
        f"{name}: the list of files at {where} could not be used ({reason}); run the command again, or put "
        f"{archive.file} into {target}, {PAGES}."
    )


def _letters(file: str) -> str:
    """Return a file's name without case and punctuation: FG-NET.mat and fgnet.mat are one."""
    return "".join(filter(str.isalnum, file.lower()))


def _check_space(work: Path, archive: Archive) -> None:
    free = shutil.disk_usage(work).free
    if archive.size and free < 2 * archive.size:
        raise DataError(
            f"{archive.file} and its unpacked files need {2 * archive.size / 1e9:.1f} GB; "
            f"{work.parent} has {free / 1e9:.1f} GB free."
        )


def _mismatch(path: Path, archive: Archive) -> str:
    """Return what is wrong with a file, or an empty string."""
    size = path.stat().st_size
    digests = {"sha256": archive.sha256, "md5": archive.md5, "git blob": archive.git_blob}
    for kind, published_digest in digests.items():
        if published_digest:
            digest = hashlib.new("sha1" if kind == "git blob" else kind, usedforsecurity=False)
            if kind == "git blob":
                digest.update(b"blob %d\0" % size)
            with path.open("rb") as stream:
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
            if digest.hexdigest() != published_digest:
                return f"has {kind} {digest.hexdigest()[:12]}…, not the published {published_digest[:12]}…"
            return ""
    if archive.size is not None and size != archive.size:
        return f"has {size:,} bytes, not {archive.size:,}"
    return ""


# Transfer -----------------------------------------------------------------------------------------------------------


def _download(url: str, part: Path, archive: Archive, progress: Progress, pause: float) -> str:
    """Fill `part` from a URL, resuming where it stops; return the reason if it cannot be completed."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        return "is not an http address"
    failures, reason = 0, ""
    while failures < ATTEMPTS:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _transfer(url, part, archive.file, progress):
                return ""
            reason = "the transfer broke off"
        except urllib.error.HTTPError as error:
            if error.code not in (408, 429, 500, 502, 503, 504):
                return f"the server answers {error.code} {error.reason}"
            reason = f"the server answers {error.code} {error.reason}"
        except urllib.error.URLError as error:
            return f"no connection ({getattr(error.reason, 'strerror', None) or error.reason})"
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = f"the transfer broke off ({error or type(error).__name__})"
        progressed = part.exists() and part.stat().st_size > before
        failures = 0 if progressed else failures + 1
        time.sleep(pause * 2**failures if failures < ATTEMPTS else 0)
    return reason


def _transfer(url: str, part: Path, what: str, progress: Progress) -> bool:
    """Send one request; return whether the file is complete afterwards."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "candid-fetch", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing left to send, or the part is longer than the file
            if error.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                return True
            part.unlink()
            return False
        raise
    with response:
        is_partial = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not is_partial:
            raise http.client.HTTPException("the server sent another range than requested")
        have = have if is_partial else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if is_partial else "wb") as stream:
            while chunk := response.read(CHUNK):
                stream.write(chunk)
                have += len(chunk)
                progress(what, have, total)
            stream.flush()
            os.fsync(stream.fileno())
    return total is None or have == total


# Unpacking ----------------------------------------------------------------------------------------------------------


def _unpack(file: Path, archive: Archive, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    if archive.unpack:
        extract(file, into, archive.file)
    else:
        shutil.copyfile(file, into / archive.file)


def extract(file: Path, into: Path, label: str | None = None) -> None:
    """Unpack a tar file through `tarfile`'s data filter; the first entry that it refuses stops it.

    Links that stay inside are left out (no set needs them), so no later entry can be written through one.
    """
    label = label or file.name
    if not hasattr(tarfile, "data_filter"):
        raise DataError(f"{label} cannot be unpacked safely by this Python; version 3.11.4 or later can.")
    room = shutil.disk_usage(into).free
    try:
        with tarfile.open(file) as archive:
            for member in archive:
                _refuse_hostile(member, into, label)
                if member.issym() or member.islnk():
                    continue
                room -= member.size
                if room < 0:
                    raise DataError(f"{label} needs more disk space than is free.")
                archive.extract(member, into, filter="data")
    except (tarfile.TarError, zlib.error, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise DataError(f"{label} is damaged or cut off: {reason}.") from None
    except OSError as error:
        if error.errno is None:  # gzip reports damage in this form
            raise DataError(f"{label} is damaged or cut off: {error}.") from None
        raise


def _refuse_hostile(member: tarfile.TarInfo, into: Path, label: str) -> None:
    """Refuse paths outside the folder, devices and pipes. The filter alone would strip a leading slash and continue."""
    parts = member.name.split("/")
    problem = "leads outside its folder" if not parts[0] or ".." in parts or "\\" in member.name else ""
    try:
        tarfile.data_filter(member, str(into))
    except tarfile.SpecialFileError:
        problem = "is a device or pipe"
    except tarfile.FilterError:
        problem = "leads outside its folder"
    if problem:
        raise DataError(f"{label} holds {member.name!r}, which {problem}; it was not unpacked.")


def _move_in(folder: Path, target: Path) -> None:
    """Rename into place: the whole folder if there is none, else entry by entry; existing folders are renamed."""
    if not target.exists():
        os.replace(folder, target)
        return
    for entry in sorted(folder.iterdir()):
        place = target / entry.name
        if place.is_dir():
            number = 1
            while (aside := target / f"{entry.name}.old{number}").exists():
                number += 1
            os.replace(place, aside)
        os.replace(entry, place)
