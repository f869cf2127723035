"""`verify`: re-hash, re-score, re-draw, re-run. Ends in a certificate. The folder is only read, nothing in it is run."""

from __future__ import annotations

import random
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.errors import COMPLETE, FAILED, INCOMPLETE, CandidError
from benchmark.files import without_paths
from benchmark.run.options import RunOptions
from benchmark.run.provenance import environment, now
from benchmark.share import checks
from benchmark.share.again import CannotBeDone, Means, TakenAsItIs, data_of
from benchmark.share.archive import misfits
from benchmark.share.reading import Held, candidate_files, forgeries, runs_in, unreadable_sets
from benchmark.share.rerun import Repetition, repeat
from benchmark.store import digest_of

FORMAT = 1
WORDS = {
    "documents": "run.json readable and whole",
    "identities": "digests, identity and place agree",
    "epochs": "every planned epoch recorded",
    "summaries": "summary follows from the epochs",
    "files": "kept files have their SHA-256",
    "candidates": "candidate sets have their SHA-256",
    "redrawn": "candidate sets drawn again",
    "scores": "accuracy from predictions and true labels",
}


@dataclass
class Tally:
    """How one check went over the runs."""

    passed: int = 0
    failed: int = 0
    not_checked: int = 0


@dataclass
class Verdict:
    """Everything that was found."""

    name: str
    runs: int = 0
    unfinished: int = 0
    content: list[Any] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=lambda: {key: Tally() for key in WORDS})
    findings: list[str] = field(default_factory=list)
    gaps: dict[str, list[str]] = field(default_factory=dict)  # by reason, the runs
    taken: dict[str, list[str]] = field(default_factory=dict)  # the same, of what nobody asked for
    repetitions: list[Repetition] = field(default_factory=list)
    cells: int = 0  # that were to be run again
    draw: int = 0

    def check(self, key: str, held: Held, test: Callable[[], list[str]]) -> None:
        """Run one check of one run and note how it went."""
        tally = self.tallies[key]
        try:
            wrong = test()
        except CannotBeDone as reason:
            tally.not_checked += 1
            noted = self.taken if isinstance(reason, TakenAsItIs) else self.gaps
            noted.setdefault(str(reason), []).append(held.name)
            return
        if wrong:
            tally.failed += 1
            self.findings += [f"{held.name}: {sentence}" for sentence in wrong]
        else:
            tally.passed += 1

    @property
    def complete(self) -> bool:
        return not self.gaps and len(self.repetitions) == self.cells

    @property
    def code(self) -> int:
        return FAILED if self.findings else COMPLETE if self.complete else INCOMPLETE

    @property
    def word(self) -> str:
        return {FAILED: "refuted", COMPLETE: "verified", INCOMPLETE: "not refuted, but not all could be checked"}[
            self.code
        ]

    @property
    def sentence(self) -> str:
        if self.findings:
            more = f" and {len(self.findings) - 1} more" if len(self.findings) > 1 else ""
            return f"{self.name} is refuted: {self.findings[0]}{more}."
        done = [f"digests and summaries of {self.runs} finished runs hold"]
        done.append(f"{self.tallies['scores'].passed} were scored again from their predictions")
        if self.tallies["redrawn"].passed:
            done.append(f"the candidate sets of {self.tallies['redrawn'].passed} were drawn again")
        done.append(_again(self.repetitions))
        return f"{self.name} is {self.word}: {'; '.join(done)}."


def _again(repetitions: Sequence[Repetition]) -> str:
    if not repetitions:
        return "none was run again"
    equal = sum(r.bit_equal for r in repetitions)
    near = [r.tolerance or 0.0 for r in repetitions if not r.bit_equal]
    within = f", {len(near)} within {max(near):.2f} points on another kind of machine" if near else ""
    return f"of {len(repetitions)} run again {equal} gave the same weights and numbers to the last bit{within}"


@dataclass(frozen=True)
class Wish:
    """What is to be run or made again."""

    cells: int = 1
    draw: int | None = None  # which cells: those of an earlier certificate
    annotators: bool = False  # candidate sets that need one, too


def verify(results: Path, name: str, means: Means, options: RunOptions, wish: Wish) -> Verdict:
    """Check a results folder; `options` name the data and the device, and not where anything is written."""
    verdict = Verdict(name, cells=wish.cells, draw=secrets.randbits(32) if wish.draw is None else wish.draw)
    verdict.findings += [f"the bundle: {sentence}" for sentence in misfits(results)]
    verdict.findings += [f"{path.relative_to(results)} cannot be read" for path in unreadable_sets(results)]
    stored, done = candidate_files(results), []
    for held in runs_in(results):
        if held.document is not None and held.document["status"] != "done":
            verdict.unfinished += 1
            continue
        verdict.runs += 1
        verdict.check("documents", held, lambda held=held: [held.problem] if held.document is None else [])  # type: ignore[misc]
        if held.document is not None:
            done.append(held)
            verdict.content.append([held.document.get(k) for k in ("identity", "weights_sha256", "summary", "files")])
    if not verdict.runs:
        raise CandidError(f"There is no finished run in {name}; there is nothing to verify.")
    with tempfile.TemporaryDirectory(prefix="candid-") as temporary:
        for held in done:
            _check_alone(verdict, held, stored)
            _check_with_data(verdict, held, means, replace(options, results=Path(temporary)), wish.annotators)
    _repeat(verdict, done, means, options, results)
    return verdict


def _check_alone(verdict: Verdict, held: Held, stored: dict[str, Path]) -> None:
    verdict.check("identities", held, lambda: forgeries(held))
    verdict.check("epochs", held, lambda: checks.epochs(held))
    verdict.check("summaries", held, lambda: checks.summary(held))
    verdict.check("files", held, lambda: checks.files(held))
    assert held.document is not None
    if held.document["config"]["dataset"].get("generator") != "own":
        verdict.check("candidates", held, lambda: checks.candidates(held, stored))


def _check_with_data(verdict: Verdict, held: Held, means: Means, options: RunOptions, annotators: bool) -> None:
    assert held.document is not None
    sha = str(held.document.get("candidates_sha256", ""))
    try:
        spec = means.spec(held.document)
        data = data_of(spec, options.data)
    except CannotBeDone as error:
        reason = error

        def never() -> list[str]:
            raise reason

        verdict.check("scores", held, never)
        verdict.check("redrawn", held, never)
        return
    verdict.check("scores", held, lambda: checks.scores(held, data))
    verdict.check("redrawn", held, lambda: checks.redrawn(spec, sha, data, options, annotators))


def _repeat(verdict: Verdict, done: list[Held], means: Means, options: RunOptions, results: Path) -> None:
    """Draw cells, one seed of each, and run them again."""
    able: dict[str, list[tuple[Held, Any]]] = {}
    for held in done:
        assert held.document is not None
        try:
            spec = means.spec(held.document)
            data_of(spec, options.data)
        except CannotBeDone:
            continue  # the checks with data have said so
        key = " ".join(str(held.document[k]) for k in ("profile", "dataset", "label"))
        able.setdefault(key, []).append((held, spec))
    lot = random.Random(verdict.draw)
    verdict.cells = min(verdict.cells, len({" ".join(h.name.split(" ")[:-2]) for h in done}))
    stored = candidate_files(results)
    for key in lot.sample(sorted(able), min(verdict.cells, len(able))):
        held, spec = lot.choice(able[key])
        with tempfile.TemporaryDirectory(prefix="candid-") as temporary:
            try:
                here = repeat(held, spec, replace(options, results=Path(temporary)), stored, results)
            except CannotBeDone as reason:
                verdict.gaps.setdefault(str(reason), []).append(held.name)
                continue
        verdict.repetitions.append(here)
        if here.wrong:
            verdict.findings.append(f"{held.name}, run again: {here.wrong}")


def certificate(verdict: Verdict, device: str) -> dict[str, Any]:
    """The verdict for machines, fit to publish. `content_sha256` ties it to the numbers that were looked at."""
    whole = {
        "format": FORMAT,
        "verdict": verdict.word,
        "sentence": verdict.sentence,
        "of": verdict.name,
        "content_sha256": digest_of(sorted(verdict.content, key=lambda entry: str(entry[0]))),
        "date": now(),
        "runs": verdict.runs,
        "unfinished_runs": verdict.unfinished,
        "checks": {key: {"what": WORDS[key], **vars(tally)} for key, tally in verdict.tallies.items()},
        "findings": verdict.findings,
        "not_checked": {r: sorted(set(names)) for r, names in {**verdict.gaps, **verdict.taken}.items()},
        "cells_asked_for": verdict.cells,
        "draw": verdict.draw,
        "run_again": [repetition.to_json() for repetition in verdict.repetitions],
        "environment": environment(device),
    }
    return dict(without_paths(whole))
