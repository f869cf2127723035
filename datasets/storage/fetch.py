"""Downloading a data set: fetch, resume, verify, unpack without trust, check, and only then move into place.

Everything happens in `<root>/.fetch-<name>/`; `<root>/<name>` changes by rename at the end, so a command that is killed
leaves either the old state or the new one, and downloads where they stopped when it is run again.
"""

from __future__ import annotations

import hashlib
import http.client
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
from dataclasses import dataclass
from pathlib import Path

from datasets.base import Availability, DataError
from datasets.registry import get
from datasets.storage.files import locked

CHUNK = 1 << 20
ATTEMPTS = 5  # in a row without a single new byte
TIMEOUT = 30.0  # seconds
PAGES = "see docs/data.md"

Progress = Callable[[str, int, "int | None"], None]  # what, done, total (bytes)
Check = Callable[[Path], Availability]


@dataclass(frozen=True)
class Archive:
    """One file to fetch. `origin` says where its hash was published; without a hash only the structure is checked."""

    file: str
    urls: tuple[str, ...] = ()
    sha256: str = ""
    md5: str = ""
    git_blob: str = ""  # git's SHA-1 of the file
    size: int | None = None
    origin: str = ""
    terms: str = ""  # what its provider allows, said before the download
    folder: str = ""  # below <root>/<name>, where it is unpacked
    unpack: bool = True


def _table(file: str, sha256: str = "", git_blob: str = "") -> tuple[Archive]:
    """A `.mat` file of a public repository that publishes results on it, at the commit of those results."""
    where = "mathefuchs/pll-with-conformal-candidate-cleaning/0bc1124707aa902bfb4faad872b34abebea07d21"
    return (
        Archive(
            file,
            (f"https://raw.githubusercontent.com/{where}/data/realworld-datasets/{file}",),
            origin="the repository's commit",
            unpack=False,
            terms="its provider, PALM at Southeast University, allows academic use; cite the set's authors",
            sha256=sha256,
            git_blob=git_blob,
        ),
    )


def _fashion(file: str, md5: str) -> Archive:
    address = f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{file}"
    return Archive(file, (address,), md5=md5, origin="the publisher's page", terms="MIT licence", unpack=False)


_DOGS = "http://vision.stanford.edu/aditya86/ImageNetDogs/"
_TFDS = "TensorFlow Datasets"

ARCHIVES: dict[str, tuple[Archive, ...]] = {
    "cifar100": (
        Archive(
            "cifar-100-python.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",),
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            origin="torchvision",
        ),
    ),
    "fashion-mnist": (
        _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
    "fgvc100": (
        Archive(
            "fgvc-aircraft-2013b.tar.gz",
            ("https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",),
            md5="d4acdd33327262359767eeaa97a4f732",
            origin="several public loaders",
        ),
    ),
    "dogs120": (
        Archive(
            "images.tar",
            (_DOGS + "images.tar",),
            sha256="a443fc2f9a851aa1a7b8e4fa4af94b8459fce2c9f5a2f4dd4669cf9673a4ec58",
            size=793_579_520,
            origin=_TFDS,
        ),
        Archive(
            "lists.tar",
            (_DOGS + "lists.tar",),
            sha256="34b47cacd9a98b5d150e084f24d29391c084c55272295ec65c85651bc35f4d6c",
            size=481_280,
            origin=_TFDS,
        ),
    ),
    "cub200": (
        Archive(
            "CUB_200_2011.tgz",
            (
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz?download=1",
                "https://s3.amazonaws.com/fast-ai-imageclas/CUB_200_2011.tgz",
            ),
            sha256="0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            md5="97eceeb196236b17998738112f37df78",
            size=1_150_585_339,
            origin=f"{_TFDS} (SHA-256), several public loaders (MD5)",
        ),
    ),
    # Stanford's server is gone; archives that the user has put into the folder are verified and unpacked.
    "cars196": (
        Archive(
            "cars_train.tgz",
            sha256="512b227b30e2f0a8aab9e09485786ab4479582073a144998da74d64b801fd288",
            size=979_269_282,
            origin=_TFDS,
        ),
        Archive(
            "cars_test.tgz",
            sha256="bffea656d6f425cba3c91c6d83336e4c5f86c6cffd8975b0f375d3a10da8e243",
            size=977_350_468,
            origin=_TFDS,
        ),
        Archive(
            "car_devkit.tgz",
            sha256="b97deb463af7d58b6bfaa18b2a4de9829f0f79e8ce663dfa9261bf7810e9accd",
            size=330_960,
            origin=_TFDS,
        ),
        Archive(
            "cars_test_annos_withlabels.mat",
            sha256="790f75be8ea34eeded134cc559332baf23e30e91367e9ddca97d26ed9b895f05",
            size=185_758,
            origin=_TFDS,
            unpack=False,
        ),
    ),
    "lost": _table("lost.mat", sha256="42a8cc43e05578087e7b8ca194647829ec535dc4d0a86cf47f357c5eb3146e4f"),
    "msrcv2": _table("msrc-v2.mat", sha256="948e4d443a5450308f05aa689bc82d9bcc7af699a113a6a81c40ef337a20c393"),
    "birdsong": _table("bird-song.mat", sha256="2170d46765a151ac80623d9a1242e0299802236e5574442bdb596bef90f50743"),
    "soccer": _table("soccer.mat", git_blob="3372e7350e06eba374c715e07fbd18e2555e00ec"),
    "yahoo": _table("yahoo-news.mat", git_blob="c9c3c35a6562ece4dffca8e7997c4c9cdcd12354"),
    "mirflickr": _table("mir-flickr.mat", git_blob="4e35e2ac7d16120722a2f2ec6e7baa99138ddbd0"),
}
SAME_FILES = {"cifar100h": "cifar100"}


def show(what: str, done: int, total: int | None) -> None:
    """The default progress: one line on a terminal, nothing in a log."""
    if sys.stderr.isatty():
        of = f" of {total / 1e6:,.1f}" if total else ""
        print(f"\r{what}: {done / 1e6:,.1f}{of} MB", end="\n" if done == total else "", file=sys.stderr, flush=True)


def fetch(
    name: str,
    root: Path,
    sources: Sequence[Archive] | None = None,
    progress: Progress = show,
    check: Check | None = None,
    pause: float = 1.0,
) -> Path:
    """Bring a data set into `<root>/<name>` and return that folder.

    `sources` replaces the table of archives (mirrors); `check` replaces the data set's own test for completeness.
    `pause` is the wait in seconds before a broken transfer is taken up again, doubled each time.
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
            staged = work / "unpacked"
            shutil.rmtree(staged, ignore_errors=True)
            for archive, file in zip(archives, files, strict=True):
                _unpack(file, archive, staged / name / archive.folder)
            result = check(staged)
            if result.status != "found":
                detail = result.detail.replace(str(staged), str(root))
                raise DataError(f"{name}: what was unpacked is {result.status}: {detail.rstrip('.')}.")
            _move_in(staged / name, target)
            shutil.rmtree(work)
    except OSError as error:
        raise DataError(f"{name}: {error.filename or root} cannot be written: {error.strerror or error}.") from None
    return target


def _obtain(name: str, archive: Archive, target: Path, work: Path, progress: Progress, pause: float) -> Path:
    """The verified file: one that the user has put there, one from an earlier attempt, or a fresh download."""
    for placed in (target / archive.file, target.parent / archive.file, work / archive.file):
        if placed.is_file():
            problem = _mismatch(placed, archive)
            if not problem:
                return placed
            if placed.parent != work:
                raise DataError(f"{placed} {problem}; remove it, or unpack it yourself if you trust it.")
            placed.unlink()
    if not archive.urls:
        wanted = ", ".join(a.file for a in ARCHIVES.get(name, (archive,)))
        raise DataError(
            f"{name}: the publisher's server no longer hands out {archive.file}; put {wanted} into {target} and run this "
            f"command again, or put the unpacked folders there, {PAGES}."
        )
    _check_space(work, archive)
    part = work / (archive.file + ".part")
    problems: list[str] = []
    for url in archive.urls:
        if part.exists() and problems and not (archive.sha256 or archive.md5 or archive.git_blob):
            part.unlink()  # nothing would show that the halves of two sources do not fit
        went_on = part.exists()
        problem = _attempt(url, part, archive, progress, pause)
        if problem and went_on and not part.exists():  # the old half was to blame: once more from the start
            problem = _attempt(url, part, archive, progress, pause)
        if not problem:
            os.replace(part, work / archive.file)
            return work / archive.file
        problems.append(f"{urllib.parse.urlsplit(url).netloc}: {problem}")
    raise DataError(
        f"{name}: {archive.file} could not be downloaded ({'; '.join(problems)}); run the command again to go on, "
        f"or put the file into {target}, {PAGES}."
    )


def _attempt(url: str, part: Path, archive: Archive, progress: Progress, pause: float) -> str:
    """Download and verify; the reason when it failed. Bytes that are not the wanted file are not built upon."""
    problem = _download(url, part, archive, progress, pause)
    if not problem:
        problem = _mismatch(part, archive)
        if problem:
            part.unlink()
            problem = f"the file {problem}"
    return problem


def _check_space(work: Path, archive: Archive) -> None:
    work.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(work).free
    if archive.size and free < 2 * archive.size:
        raise DataError(
            f"{archive.file} and its unpacked files need {2 * archive.size / 1e9:.1f} GB; "
            f"{work.parent} has {free / 1e9:.1f} GB free."
        )


def _mismatch(path: Path, archive: Archive) -> str:
    """What is wrong with a file, or nothing."""
    size = path.stat().st_size
    expected = {"sha256": archive.sha256, "md5": archive.md5, "git blob": archive.git_blob}
    for kind, wanted in expected.items():
        if wanted:
            digest = hashlib.new("sha1" if kind == "git blob" else kind, usedforsecurity=False)
            if kind == "git blob":
                digest.update(b"blob %d\0" % size)
            with path.open("rb") as stream:
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
            if digest.hexdigest() != wanted:
                return f"has {kind} {digest.hexdigest()[:12]}…, not the published {wanted[:12]}…"
            return ""
    if archive.size is not None and size != archive.size:
        return f"has {size:,} bytes, not {archive.size:,}"
    return ""


# Transfer -----------------------------------------------------------------------------------------------------------


def _download(url: str, part: Path, archive: Archive, progress: Progress, pause: float) -> str:
    """Fill `part` from a URL, going on where it stops; the reason when it cannot be completed."""
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
                return f"the server says {error.code} {error.reason}"
            reason = f"the server says {error.code} {error.reason}"
        except urllib.error.URLError as error:
            return f"no connection ({getattr(error.reason, 'strerror', None) or error.reason})"
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            reason = f"the transfer broke off ({error or type(error).__name__})"
        gained = part.exists() and part.stat().st_size > before
        failures = 0 if gained else failures + 1
        time.sleep(pause * 2**failures if failures < ATTEMPTS else 0)
    return reason


def _transfer(url: str, part: Path, what: str, progress: Progress) -> bool:
    """One request; whether the file is complete afterwards."""
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
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if response.status == 206 and not resumed:
            raise http.client.HTTPException("the server sent another range than asked for")
        have = have if resumed else 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length is not None and length.isdecimal() else None
        with part.open("ab" if resumed else "wb") as stream:
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
                    raise DataError(f"{label} unpacks to more than the disk has room for.")
                archive.extract(member, into, filter="data")
    except (tarfile.TarError, zlib.error, EOFError) as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise DataError(f"{label} is damaged or cut off: {reason}.") from None
    except OSError as error:
        if error.errno is None:  # gzip reports damage in this form
            raise DataError(f"{label} is damaged or cut off: {error}.") from None
        raise


def _refuse_hostile(member: tarfile.TarInfo, into: Path, label: str) -> None:
    """Refuse what leads outside, devices and pipes. The filter alone would strip a leading slash and go on."""
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


def _move_in(staged: Path, target: Path) -> None:
    """Rename into place: the whole folder when there is none, else entry by entry; a folder in the way is set aside."""
    if not target.exists():
        os.replace(staged, target)
        return
    for entry in sorted(staged.iterdir()):
        place = target / entry.name
        if place.is_dir():
            number = 1
            while (aside := target / f"{entry.name}.old{number}").exists():
                number += 1
            os.replace(place, aside)
        os.replace(entry, place)
