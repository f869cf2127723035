"""`check FILE`: run all checks on every method of a file, in a process of its own with a time limit per check."""

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
from collections.abc import Iterator
from pathlib import Path

from benchmark.errors import COMPLETE, FAILED, MethodDefect
from benchmark.files import ROOT
from datasets.base import plural
from methods.registry import discover, scan

SECONDS = 15.0  # for one check
Event = dict[str, str]  # method, check, mark and text
BEGINS, END, OK, DEFECT, SKIPPED = "begins", "end", "ok", "DEFECT", "skipped"


def check(file: Path) -> int:
    """Print one line per check and method; return the exit code."""
    discover((file,))  # a missing file, a syntax error or a name that is taken: one sentence
    defects: list[str] = []  # repeated at the end
    methods: list[str] = []
    skipped = 0
    for event in events(file):
        if event["method"] not in methods:
            methods.append(event["method"])
            print(f"{event['method']} ({file})", flush=True)
        line = f"  {event['mark']:7} {event['check']:16} {event['text']}"
        print(line, flush=True)
        skipped += event["mark"] == SKIPPED
        if event["mark"] == DEFECT:
            defects.append(line)
    heading = plural(len(methods), "method")
    if not defects:
        print(f"{heading}: all checks pass.")
        return COMPLETE
    rest = f"; {plural(skipped, 'check')} not tried because of that" if skipped else ""
    print(f"{heading}: {plural(len(defects), 'defect')}{rest}.")
    if len(defects) > 1:
        print("\n".join(defects))
    return FAILED


def events(file: Path, seconds: float = SECONDS) -> Iterator[Event]:
    """Yield the results of the process that runs the checks. If it dies or hangs, that is the last result."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    path = str(file.resolve())
    words = [sys.executable, "-m", "benchmark.contract.command", path, str(seconds)]
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        process = subprocess.Popen(
            words, cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        )  # fmt: skip
        event: Event = {"method": file.stem, "check": "start"}
        try:
            for line in process.stdout or ():
                event = json.loads(line)
                if event["mark"] == END:
                    return
                if event["mark"] != BEGINS:
                    yield event | {"text": event["text"].replace(path, str(file))}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what the plug-in has started
            process.wait()
        stderr.seek(0)
        output = stderr.read()
    line_number = re.search(rf'File "{re.escape(path)}", line (\d+)', output)
    where = f"{file}:{line_number[1]}" if line_number else str(file)
    if "Timeout (" in output:
        cause = f"it did not end within {seconds:.0f} s; is there an endless loop?"
    else:
        cause = cause_of_death(process.returncode)
    yield event | {"mark": DEFECT, "text": f"{where}: {cause}"}


def cause_of_death(code: int) -> str:
    """Return why a process ended that did not reach a time limit."""
    if code == -signal.SIGKILL:
        return "the process was killed (SIGKILL) from outside, for example because memory ran out."
    if code < 0:
        return f"it killed the process ({signal.Signals(-code).name})."
    return f"it ended the process (exit code {code})."


def run_checks(file: Path, seconds: float) -> None:
    """Run every check on every method of the file and write one line of JSON before and after each."""
    report = os.fdopen(os.dup(sys.__stdout__.fileno()), "w", buffering=1)  # type: ignore[union-attr]
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    faulthandler.enable()

    def write(mark: str, method: str = "", check: str = "", text: str = "") -> None:
        print(json.dumps({"method": method, "check": check, "mark": mark, "text": text}), file=report)

    import torch

    from benchmark.contract.checks import CHECKS, Check, sentence, title
    from benchmark.contract.subject import Subject, run_check

    torch.compiler.reset()  # imports the compiler, as optimisers do at their first step: not within a check's time
    for entry in scan(file):
        subject = Subject(entry)
        failed: list[Check] = []  # defects, and checks that were not tried because of them
        for one, requirements in CHECKS.items():
            where = (entry.name, title(one))
            missing = [title(requirement) for requirement in requirements if requirement in failed]
            if missing:
                failed.append(one)
                write(SKIPPED, *where, f"needs {', '.join(missing)}")
                continue
            write(BEGINS, *where)
            faulthandler.dump_traceback_later(seconds, exit=True)
            try:
                advice = run_check(one, subject)
                write(OK, *where, sentence(one) + (f" ({advice})" if advice else ""))
            except MethodDefect as defect:
                failed.append(one)
                write(DEFECT, *where, f"{defect}.")
            faulthandler.cancel_dump_traceback_later()
    write(END)


if __name__ == "__main__":
    run_checks(Path(sys.argv[1]), float(sys.argv[2]))
