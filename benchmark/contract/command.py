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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.errors import COMPLETE, FAILED, MethodDefect
from benchmark.files import ROOT
from methods.registry import discover, scan

CHECK_SECONDS = 15.0  # for one check
START_SECONDS = 60.0  # for the imports
METHOD_SECONDS = 60.0  # for all checks of a method; none begins after that


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


def events(
    file: Path, seconds: float = CHECK_SECONDS, method_seconds: float = METHOD_SECONDS
) -> Iterator[dict[str, Any]]:
    """Yield the results from the process that runs the checks. If it dies or hangs, that is the last result."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    words = [sys.executable, "-m", "benchmark.contract.command", str(file.resolve()), str(seconds), str(method_seconds)]
    limit = START_SECONDS + len(scan(file)) * (method_seconds + seconds)
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        current: dict[str, Any] = {"method": "", "check": "start", "where": str(file)}
        timer = threading.Timer(limit, os.killpg, (process.pid, signal.SIGKILL))  # and what the plug-in has started
        timer.start()
        try:
            for line in process.stdout or ():
                current = json.loads(line)
                if not current:
                    return
                if "mark" in current:
                    yield current | {"text": current["text"].replace(str(file.resolve()), str(file))}
        finally:
            too_late = not timer.is_alive()
            timer.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        stderr.seek(0)
        output = stderr.read()
        line_number = re.search(rf'File "{re.escape(str(file.resolve()))}", line (\d+)', output)
        where = f"{file}:{line_number[1]}" if line_number else current["where"].replace(str(file.resolve()), str(file))
        if too_late or "Timeout (" in output:
            cause = f"it did not end within {limit if too_late else seconds:.0f} s; is there an endless loop?"
        else:
            cause = cause_of_death(process.returncode)
        yield current | {"mark": "DEFECT", "text": f"{where}: {cause}", "skipped": current.get("remaining", 0)}


def cause_of_death(code: int) -> str:
    """Return why a process ended that was not killed by a time limit."""
    if code == -signal.SIGKILL:
        return "the process was killed (SIGKILL) from outside, for example because memory ran out."
    if code < 0:
        return f"it killed the process ({signal.Signals(-code).name})."
    return f"it ended the process (exit code {code})."


def run_checks(file: Path, seconds: float, method_seconds: float) -> None:
    """Run every check on every method of the file and write one line of JSON before and after each."""
    report = os.fdopen(os.dup(sys.__stdout__.fileno()), "w", buffering=1)  # type: ignore[union-attr]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faulthandler.enable()

    import torch

    from benchmark.contract.checks import CHECKS, sentence, title
    from benchmark.contract.subject import Subject, run_check

    torch.compiler.reset()  # imports the compiler, as optimisers do at their first step: not within a check's time
    for entry in scan(file):
        subject, deadline = Subject(entry), time.monotonic() + method_seconds
        failed: set[Any] = set()  # defects, and checks that were not tried because of them
        for number, (one, needs) in enumerate(CHECKS.items(), 1):
            result = {"method": entry.name, "check": title(one), "where": f"{file}:{entry.line}", "skipped": 0}
            remaining = len(CHECKS) - number
            if failed.intersection(needs):
                failed.add(one)
                cause = ", ".join(title(need) for need in needs if need in failed)
                print(json.dumps(result | {"mark": "skipped", "text": f"needs {cause}", "skipped": 1}), file=report)
                continue
            if time.monotonic() > deadline:
                text = f"{result['where']}: the checks took more than {method_seconds:.0f} s; make its steps faster."
                print(json.dumps(result | {"mark": "DEFECT", "text": text, "skipped": remaining}), file=report)
                break
            print(json.dumps(result | {"remaining": remaining}), file=report)
            faulthandler.dump_traceback_later(seconds, exit=True)
            try:
                advice = run_check(one, subject)
                result |= {"mark": "ok", "text": sentence(one) + (f" ({advice})" if advice else "")}
            except MethodDefect as defect:
                result |= {"mark": "DEFECT", "text": f"{defect}."}
                failed.add(one)
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(result), file=report)
    print(json.dumps({}), file=report)


if __name__ == "__main__":
    run_checks(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
