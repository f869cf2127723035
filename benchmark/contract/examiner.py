"""How a method is examined: a small task, trainings that are watched, and claims tried one by one under a time limit.

Trainings go through the trainer itself, on 62 small coloured images with singleton and full candidate sets, so that
what is tried here is what runs in a table. The claims are in contract.py.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import math
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmark.config.profile import load_profile
from benchmark.config.resolution import resolve
from benchmark.config.sections import Train
from benchmark.config.spec import RunSpec
from benchmark.trainer.guard import Diverged
from benchmark.trainer.inputs import ViewLoader
from benchmark.trainer.seeding import derive
from benchmark.trainer.trainer import Hooks, Trainer, weights_digest
from datasets.base import Dataset, Split
from datasets.views.recipes import DIGITS
from methods.base import Batch, Clock, Method, Step, Task
from methods.registry import Entry, MethodError, load

CLASSES, ROWS, TEST_ROWS, SIDE = 5, 62, 40, 16
SINGLETONS, FULL = slice(0, 4), slice(4, 8)  # rows whose candidate set is as small, as large as it can be
TRAIN = Train(epochs=5, batch=12, lr=0.02, last_batch="keep", eval_every=5)  # the last batch: 2 rows
PRINT_LIMIT = 4096  # characters in a training of 30 steps
CLAIM_SECONDS = 15.0
ENDLESS = "endless"


class Defect(Exception):
    """A claim that does not hold; `where` is 'file:line' if more is known than a traceback tells."""

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text)
        self.where = where


@dataclass(frozen=True)
class Finding:
    """What came of one claim on one method."""

    method: str
    claim: str
    status: str  # ok | defect | skipped
    text: str = ""  # of a defect: what is wrong and what to do; otherwise a remark
    where: str = ""  # file:line of a defect
    endless: bool = False  # it was cut off by the time limit


@dataclass(frozen=True)
class Claim:
    """A sentence about a method, and the function that raises if it is not true (or returns a remark)."""

    name: str
    sentence: str
    test: Callable[[Subject], str | None]
    needs: tuple[str, ...]  # claims without which this one cannot be tried
    member: str  # whose line is named when no traceback leads into the method's file


# the task ------------------------------------------------------------------------------------------------------------


def coloured_images(count: int, seed: int) -> Split:
    """Noisy images whose class shows in the colour and the place of a bar; labels in turn."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    colours = torch.tensor([[230, 40, 40], [40, 210, 60], [50, 70, 235], [235, 215, 40], [205, 60, 215]])
    images = torch.full((count, 3, SIDE, SIDE), 40.0)
    column = torch.arange(SIDE)[None, None, None] // 3
    on_bar = (column == labels[:, None, None, None]).expand(count, 3, SIDE, SIDE)
    paint = colours[labels].float()[:, :, None, None].expand_as(images)
    images = torch.where(on_bar, paint, 0.5 * paint)
    images += 25 * torch.randn(images.shape, generator=generator)
    return Split(images.clamp(0, 255).to(torch.uint8), labels)


def small_task(relabelled: bool = False) -> tuple[Dataset, Tensor]:
    """The data and their candidate sets (N, C). `relabelled`: other true labels, same images and candidate sets."""
    train, test = coloured_images(ROWS, 1), coloured_images(TEST_ROWS, 2)
    generator = torch.Generator().manual_seed(3)
    candidates = torch.rand(ROWS, CLASSES, generator=generator) < 0.3
    candidates[SINGLETONS], candidates[FULL] = False, True
    candidates[torch.arange(ROWS), train.labels] = True
    if relabelled:
        train, test = (Split(part.images, _other_labels(part.labels)) for part in (train, test))
    names = ("red", "green", "blue", "yellow", "violet")
    return Dataset("contract", CLASSES, names, train, test, DIGITS, backbone="small-cnn"), candidates


def _other_labels(labels: Tensor) -> Tensor:
    """No label as it was, nor any class as frequent."""
    return (labels + 1 + torch.arange(len(labels)) % 3 // 2) % CLASSES


class CachedViews(ViewLoader):
    """Views made once and handed out as copies: trainings of one examination ask for the same ones again and again."""

    kept: ClassVar[dict[Any, tuple[Tensor, ...]]] = {}

    def __init__(self, dataset: Dataset, spec: RunSpec, device: torch.device) -> None:
        super().__init__(dataset, derive(spec.seed, "views"), device, spec.train.channels_last)

    def train_views(self, rows: Tensor, names: Any, epoch: int) -> tuple[Tensor, ...]:
        key = (tuple(rows.tolist()), tuple(names), epoch, self.format)
        if key not in self.kept:
            self.kept[key] = super().train_views(rows, names, epoch)
        return tuple(view.clone() for view in self.kept[key])


class Observer(TorchFunctionMode):
    """Follows a training: which line wrote into what a batch lends, and how much was printed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = str(file.resolve())
        self.lent: dict[str, Tensor] = {}
        self.versions: dict[str, int] = {}
        self.writes: dict[str, str] = {}  # what was written to -> where
        self.printed, self.printed_at = 0, ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.look()
        return result

    def lend(self, batch: Batch) -> None:
        views = {f"batch.views[{k}]": view for k, view in enumerate(batch.views)}
        self.lent = {**views, "batch.candidates": batch.candidates, "batch.index": batch.index}
        self.versions = {name: tensor._version for name, tensor in self.lent.items()}

    def look(self) -> None:
        for name, tensor in self.lent.items():
            if tensor._version != self.versions[name]:
                self.versions[name] = tensor._version
                self.writes.setdefault(name, self.here())

    def here(self) -> str:
        """file:line of the innermost frame in the method's file."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and str(Path(frame.f_code.co_filename).resolve()) != self.file:
            frame = frame.f_back
        return "" if frame is None else f":{frame.f_lineno}"

    def meter(self) -> Meter:
        return Meter(self)


class Meter(io.TextIOBase):
    """Swallows what is printed and counts it."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def write(self, text: str) -> int:
        before = self.observer.printed
        self.observer.printed += len(text)
        if before <= PRINT_LIMIT < self.observer.printed:
            self.observer.printed_at = self.observer.here()
        return len(text)


@dataclass
class Whole:
    """One training from its first step to its last."""

    trainer: Trainer
    accuracy: float
    digest: str
    observer: Observer
    changed: list[str]  # lent tensors whose content changed, by whatever way


class Subject:
    """One method under examination, with the trainings that several claims look at, each done once."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @cached_property
    def cls(self) -> type[Method]:
        return load(self.entry)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.entry.file.read_text(encoding="utf-8"))

    def trainer(self, relabelled: bool = False, hooks: Hooks | None = None, on: str = "cpu", **changes: Any) -> Trainer:
        """The real trainer on the small task."""
        dataset, candidates = small_task(relabelled)
        spec = resolve(load_profile("quick"), self.entry, "digits", seed=0)  # heads scaled to a small network
        spec = spec.with_train(**{**dataclasses.asdict(TRAIN), **changes})
        device = torch.device(on)
        inputs = CachedViews(dataset, spec, device) if on == "cpu" else None
        return Trainer(spec, self.cls, dataset, candidates, device, hooks, inputs)

    def train(self, relabelled: bool = False) -> Whole:
        trainer, observer = self.trainer(relabelled), Observer(self.entry.file)
        changed: list[str] = []
        update, sets = trainer.method.update, trainer.candidates.clone()

        def watched_update(batch: Batch, optimizer: Any, clock: Clock) -> Step:
            observer.lend(batch)
            copies = {name: tensor.clone() for name, tensor in observer.lent.items()}
            with observer:
                step = update(batch, optimizer, clock)
            changed.extend(name for name, copy in copies.items() if not torch.equal(copy, observer.lent[name]))
            return step

        trainer.method.update = watched_update  # type: ignore[method-assign]
        with contextlib.redirect_stdout(observer.meter()), contextlib.redirect_stderr(observer.meter()):
            records = [trainer.train_epoch() for _ in range(trainer.epochs)]
        if not torch.equal(sets, trainer.candidates):
            changed.append("task.candidates")
        return Whole(trainer, records[-1]["result"]["test_accuracy"], weights_digest(trainer.method), observer, changed)

    @cached_property
    def whole(self) -> Whole:
        return self.train()

    @cached_property
    def relabelled(self) -> Whole:
        return self.train(relabelled=True)

    @cached_property
    def repeated(self) -> Whole:
        """The same training again; one on other true labels that ends alike is as good."""
        return self.relabelled if self.relabelled.digest == self.whole.digest else self.train()

    def started(self, **changes: Any) -> Trainer:
        """A trainer in its first epoch."""
        trainer = self.trainer(**changes)
        trainer.begin_epoch()
        return trainer

    # where things are -------------------------------------------------------------------------------------------------
    def line(self, number: int) -> str:
        return f"{self.entry.file}:{number}"

    def member(self, name: str) -> str:
        """file:line of a method of the class, or of a class inside it, if the file defines it; else of the class."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and node.name == self.entry.class_name:
                for item in node.body:
                    if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name == name:
                        # Of a decorated class the decorator's line is the first.
                        return self.line(min([item.lineno, *(d.lineno for d in item.decorator_list)]))
        return self.line(self.entry.line)

    def attribute(self, name: str) -> str:
        """file:line where `self.<name>` gets its value, or is registered as a buffer; else of the class."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Attribute) and target.attr == name for target in targets):
                    return self.line(node.lineno)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_buffer":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and first.value == name:
                    return self.line(node.lineno)
        return self.line(self.entry.line)

    def deepest(self, error: BaseException) -> str:
        """file:line of the innermost frame of a traceback that lies in the method's own file, or nothing."""
        own = self.entry.file.resolve()
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == own]
        return self.line(lines[-1] or 0) if lines else ""


# trying claims -------------------------------------------------------------------------------------------------------


class TimeUp(BaseException):
    """A claim took too long. Not an Exception, so that a method's own `except Exception` does not swallow it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeUp in the running line after so many seconds, and every second after that in case it is swallowed."""

    def on_alarm(*_: object) -> None:
        raise TimeUp

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def try_claim(subject: Subject, one: Claim, seconds: float = CLAIM_SECONDS) -> Finding:
    """One claim on one method; whatever the method does becomes a finding."""
    name = subject.entry.name
    try:
        with time_limit(seconds), contextlib.redirect_stdout(io.StringIO()):
            remark = one.test(subject)
    except TimeUp as error:
        where = subject.deepest(error) or subject.member(one.member)
        text = f"it did not end within {seconds:.0f} s; is there an endless loop?"
        return Finding(name, one.name, "defect", text, where, endless=True)
    except Defect as error:
        return Finding(name, one.name, "defect", str(error), error.where or subject.member(one.member))
    except MethodError as error:
        return Finding(name, one.name, "defect", *_apart(str(error), subject.line(subject.entry.line)))
    except (Exception, SystemExit) as error:
        where = subject.deepest(error) or subject.member(one.member)
        return Finding(name, one.name, "defect", describe(error), where)
    return Finding(name, one.name, "ok", remark or "")


def examine(
    entry: Entry,
    claims: Sequence[Claim],
    seconds: float = CLAIM_SECONDS,
    deadline: float = math.inf,
    begin: Callable[[Claim], None] = lambda one: None,
) -> Iterator[Finding]:
    """The claims on one method, in order; none begins after the deadline (of `time.monotonic`).

    A claim whose needs failed is skipped, and so are all others once something did not end.
    """
    subject = Subject(entry)
    bad: dict[str, str] = {}
    for one in claims:
        cause = next((need for need in (ENDLESS, *one.needs) if need in bad), "")
        if time.monotonic() > deadline - 1:
            cause = "the time limit"
        if cause:
            bad[one.name] = bad.get(cause, cause)
            yield Finding(entry.name, one.name, "skipped", f"not tried because of {bad[one.name]}")
            continue
        begin(one)
        finding = try_claim(subject, one, min(seconds, deadline - time.monotonic()))
        if finding.status == "defect":
            bad[one.name] = f"`{one.name}`"
        if finding.endless:
            bad[ENDLESS] = f"`{one.name}`"
        yield finding


def describe(error: BaseException) -> str:
    """An error of the method's code as a sentence, with a hint where the interface was misunderstood."""
    if isinstance(error, Diverged):
        return f"{error}; look for a logarithm or a quotient that reaches 0"
    first = (str(error) or "no message").strip().splitlines()[0]
    hint = ""
    lacking = re.search(r"'(Batch|Task|Clock|TrainingRows)' object has no attribute '(\w+)'", first)
    if lacking:
        kinds: dict[str, str] = {
            kind.__name__: ", ".join(f.name for f in dataclasses.fields(kind)) for kind in (Batch, Task, Clock)
        }
        has = kinds.get(lacking[1], "infer and reset_momentum")
        truth = "label" in lacking[2] or "target" in lacking[2]
        hint = f"; it has {has}" + (", and true labels are never handed to a method" if truth else "")
    return f"{type(error).__name__}: {first}{hint}"


def _apart(text: str, where: str) -> tuple[str, str]:
    """'file:12: what' -> ('what', 'file:12')."""
    found = re.match(r"(.+?:\d+): (.*)", text, re.DOTALL)
    return (found[2], found[1]) if found else (text, where)
