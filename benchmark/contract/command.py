"""`check FILE`: the contract of contract.py on every method of a file, in a process of its own that cannot hang."""

from __future__ import annotations

import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmark.errors import COMPLETE, FAILED
from benchmark.files import ROOT
from methods.registry import Entry, discover, scan

if TYPE_CHECKING:
    from benchmark.contract.examiner import Claim

LIMIT = 54.0  # seconds for the whole command
MARKS = {"ok": "ok", "defect": "DEFECT", "skipped": "–"}


def check(file: Path) -> int:
    """Print one line per claim and method; the exit code says whether all hold."""
    discover((file,))  # a missing file, a syntax error or a name that is taken: one sentence
    names = [entry.name for entry in scan(file)]
    found: list[str] = []  # defects, shown once more at the end, where they are looked for
    skipped, last = 0, ""
    for event in events(file, LIMIT):
        skipped += event["status"] == "skipped"
        if event["status"] == "skipped":  # a number at the end says it
            continue
        if event["method"] != last:
            last = event["method"]
            print(f"{last} ({file})", flush=True)
        print(line_of(event), flush=True)
        found += [line_of(event)] if event["status"] == "defect" else []
    what = f"{len(names)} method{'s' * (len(names) > 1)}: "
    if not found and not skipped:
        print(f"{what}every claim of the contract holds.")
        return COMPLETE
    rest = (
        f"; {skipped} claim{'s' * (skipped > 1)} not tried because of {'them' if len(found) > 1 else 'it'}"
        if skipped
        else ""
    )
    print(f"{what}{len(found)} defect{'s' * (len(found) != 1)}{rest}.")
    if len(found) > 1:
        print("\n".join(found))
    return FAILED


def line_of(event: dict[str, Any]) -> str:
    """'  ok      loss  The loss of …' or '  DEFECT  loss  file:12: what is wrong'."""
    if event["status"] == "defect":
        text = f"{event['where']}: {event['text']}."
    else:
        text = event["sentence"] + (f" ({event['text']})" if event["text"] else "")
    return f"  {MARKS[event['status']]:7} {event['claim']:16} {text}"


def events(file: Path, limit: float) -> Iterator[dict[str, Any]]:
    """Findings as the examining process makes them. If it dies or hangs, that is the last finding."""
    deadline = time.monotonic() + limit
    reader, writer = os.pipe()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmark.contract.command", str(file.resolve()), str(writer), str(limit - 4), str(file)],
            cwd=ROOT, pass_fds=(writer,), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=stderr, start_new_session=True,
        )  # fmt: skip
        os.close(writer)
        now: dict[str, Any] = {"claim": "process"}  # what is being tried; empty at the end
        try:
            for message in _messages(reader, deadline):
                if "status" in message:
                    yield message
                now = message
        finally:
            os.close(reader)
            _end(child)
        if now:
            stderr.seek(0)
            yield _lost(now, child.returncode, time.monotonic() >= deadline, stderr.read())


def _messages(reader: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Lines of JSON from the pipe until it is closed or the time is over."""
    selector, rest = selectors.DefaultSelector(), b""
    selector.register(reader, selectors.EVENT_READ)
    while selector.select(max(0.0, deadline - time.monotonic())):
        data = os.read(reader, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def _end(child: subprocess.Popen[bytes]) -> None:
    """The examining process and whatever the plug-in started in it."""
    try:
        child.wait(1.0)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _lost(now: dict[str, Any], code: int | None, late: bool, stderr: bytes) -> dict[str, Any]:
    last = stderr.decode(errors="replace").strip().splitlines()[-1:] or [""]
    if late:
        text = "it did not end in time and could not be interrupted; is there a loop that catches every exception?"
    elif code is not None and code < 0:
        text = f"it killed the process ({signal.Signals(-code).name})"
    else:
        text = f"it ended the process (exit code {code}) {last[0]}".rstrip()
    return {"method": "", "where": "", "sentence": "", **now, "status": "defect", "text": text.rstrip(".")}


def examine_file(file: Path, writer: int, limit: float, shown: Path) -> None:
    """In the process of its own: every claim on every method of the file, told line by line."""
    from benchmark.contract.claims import CLAIMS
    from benchmark.contract.examiner import examine

    deadline = time.monotonic() + limit

    def tell(message: dict[str, Any]) -> None:
        os.write(writer, json.dumps(message).encode() + b"\n")

    def begin(one: Claim, entry: Entry) -> None:
        tell({"method": entry.name, "claim": one.name, "where": f"{shown}:{entry.line}"})

    for entry in scan(file):
        for finding in examine(entry, CLAIMS, deadline=deadline, begin=partial(begin, entry=entry)):
            where = finding.where.replace(str(file), str(shown))
            sentence = next(one.sentence for one in CLAIMS if one.name == finding.claim)
            tell({**dataclasses.asdict(finding), "where": where, "sentence": sentence})
    tell({})


if __name__ == "__main__":
    examine_file(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
