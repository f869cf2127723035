"""`check FILE`: all checks on every method of a file, in a process of its own with a time limit."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.errors import COMPLETE, FAILED, MethodDefect
from benchmark.files import ROOT
from methods.registry import discover, scan

CHECK_SECONDS = 15.0  # for one check
START_SECONDS = 60.0  # for the imports; after these limits the process is killed


def check(file: Path) -> int:
    """Print one line per check and method; return the exit code."""
    discover((file,))  # a missing file, a syntax error or a name that is taken: one sentence
    methods = len(scan(file))
    defects: list[str] = []  # repeated at the end
    skipped, last = 0, ""
    for event in events(file):
        if event["method"] != last:
            last = event["method"]
            print(f"{last} ({file})", flush=True)
        skipped += event["skipped"]
        line = f"  {event['mark']:7} {event['check']:16} {event['text']}"
        print(line, flush=True)
        if event["mark"] == "DEFECT":
            defects.append(line)
    heading = f"{methods} method{'s' * (methods > 1)}: "
    if not defects:
        print(f"{heading}all checks pass.")
        return COMPLETE
    rest = f"; {skipped} check{'s' * (skipped > 1)} not tried because of that" if skipped else ""
    print(f"{heading}{len(defects)} defect{'s' * (len(defects) > 1)}{rest}.")
    if len(defects) > 1:
        print("\n".join(defects))
    return FAILED


def events(file: Path, seconds: float = CHECK_SECONDS) -> Iterator[dict[str, Any]]:
    """Yield the results from the process that runs the checks. If it dies or hangs, that is the last result."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", "benchmark.contract.command", str(file.resolve()), str(seconds)]
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        current: dict[str, Any] = {"method": "", "check": "start", "where": str(file)}
        try:
            for line in limited_lines(process, START_SECONDS, seconds + 5):
                current = json.loads(line)
                if "mark" in current:
                    yield current | {"text": current["text"].replace(str(file.resolve()), str(file))}
        finally:
            with contextlib.suppress(ProcessLookupError):  # what the plug-in has started ends too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if current:
            stderr.seek(0)
            where = current["where"].replace(str(file.resolve()), str(file))
            text = cause_of_death(stderr.read(), process.returncode, seconds, file, where)
            yield current | {"mark": "DEFECT", "text": text, "skipped": current.get("remaining", 0)}


def limited_lines(process: subprocess.Popen[str], first: float, next_ones: float) -> Iterator[str]:
    """Yield the lines of a process, which is killed when the next one takes too long."""
    assert process.stdout is not None
    seconds = first
    while True:
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            return
        yield line
        seconds = next_ones


def cause_of_death(stderr: str, code: int, seconds: float, file: Path, where: str) -> str:
    """Return why the process ended, with the line of the file that faulthandler has written down, if it has."""
    line = re.search(rf'File "{re.escape(str(file.resolve()))}", line (\d+)', stderr)
    place = f"{file}:{line[1]}" if line else where
    if "Timeout (" in stderr or code == -signal.SIGKILL:
        return f"{place}: it did not end within {seconds:.0f} s; is there an endless loop?"
    if code < 0:
        return f"{place}: it killed the process ({signal.Signals(-code).name})."
    return f"{place}: it ended the process (exit code {code})."


def run_checks(file: Path, seconds: float) -> None:
    """Run every check on every method of the file and write one line of JSON before and after each."""
    report = os.fdopen(os.dup(sys.__stdout__.fileno()), "w", buffering=1)  # type: ignore[union-attr]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faulthandler.enable()

    import torch

    from benchmark.contract.checks import CHECKS, STAGES, sentence, title
    from benchmark.contract.subject import Subject, run_check

    torch.compiler.reset()  # imports the compiler, as optimisers do at their first step: not within a check's time
    for entry in scan(file):
        subject, tried = Subject(entry), 0
        for stage in STAGES:
            failed = False
            for one in stage:
                tried += 1
                result = {"method": entry.name, "check": title(one), "where": f"{file}:{entry.line}", "skipped": 0}
                print(json.dumps(result | {"remaining": len(CHECKS) - tried}), file=report)
                faulthandler.dump_traceback_later(seconds, exit=True)
                try:
                    advice = run_check(one, subject)
                    result |= {"mark": "ok", "text": sentence(one) + (f" ({advice})" if advice else "")}
                except MethodDefect as defect:
                    result |= {"mark": "DEFECT", "text": f"{defect}.", "skipped": 0}
                    failed = True
                faulthandler.cancel_dump_traceback_later()
                if failed and one is stage[-1]:
                    result["skipped"] = len(CHECKS) - tried
                print(json.dumps(result), file=report)
            if failed:
                break
    print(json.dumps({}), file=report)


if __name__ == "__main__":
    run_checks(Path(sys.argv[1]), float(sys.argv[2]))
