"""Method under test: its trainings on a small task with the real trainer, and the lines of its source file.

The task has 62 small coloured images with singleton and full candidate sets.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
import traceback
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmark.config.profile import load_profile
from benchmark.config.resolution import resolve
from benchmark.config.sections import Train
from benchmark.errors import MethodDefect
from benchmark.trainer.guard import Diverged
from benchmark.trainer.trainer import Hooks, Trainer
from datasets.base import Dataset, Split
from datasets.views.recipes import DIGITS
from methods.base import Batch, Clock, Method, Task
from methods.registry import Entry, MethodError, load

CLASSES, ROWS, TEST_ROWS, SIDE = 5, 62, 40, 16
SINGLETONS, FULL = slice(0, 4), slice(4, 8)  # rows with one candidate, rows with all
TRAIN = Train(epochs=5, batch=12, lr=0.02, last_batch="keep", eval_every=5)  # the last batch has 2 rows
PRINT_LIMIT = 4096  # characters in a training of 30 steps


def coloured_images(count: int, seed: int) -> Split:
    """Return noisy images whose class shows in the colour and the place of a bar; labels in turn."""
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
    """Return the data and their candidate sets (N, C); `relabelled` changes the true labels only."""
    train, test = coloured_images(ROWS, 1), coloured_images(TEST_ROWS, 2)
    generator = torch.Generator().manual_seed(3)
    candidates = torch.rand(ROWS, CLASSES, generator=generator) < 0.3
    candidates[SINGLETONS], candidates[FULL] = False, True
    candidates[torch.arange(ROWS), train.labels] = True
    if relabelled:  # no label as it was, nor any class as frequent
        train, test = (
            Split(part.images, (part.labels + 1 + torch.arange(len(part)) % 3 // 2) % CLASSES) for part in (train, test)
        )
    names = ("red", "green", "blue", "yellow", "violet")
    return Dataset("contract", CLASSES, names, train, test, DIGITS, backbone="small-cnn"), candidates


class Training(NamedTuple):
    """Finished training."""

    method: Method
    accuracy: float  # percent of the test images


class Subject:
    """Method under test; checks share its trainings."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @cached_property
    def cls(self) -> type[Method]:
        return load(self.entry)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.entry.file.read_text(encoding="utf-8"))

    def trainer(self, relabelled: bool = False, hooks: Hooks | None = None, on: str = "cpu", **changes: Any) -> Trainer:
        """Build the real trainer on the small task; `changes` are settings of the section `train`."""
        dataset, candidates = small_task(relabelled)
        spec = resolve(load_profile("quick"), self.entry, "digits", seed=0)  # heads scaled to a small network
        spec = spec.with_train(**{**dataclasses.asdict(TRAIN), **changes})
        return Trainer(spec, self.cls, dataset, candidates, torch.device(on), hooks)

    def started(self) -> Trainer:
        """Return a trainer in its first epoch."""
        trainer = self.trainer()
        trainer.begin_epoch()
        return trainer

    def train(self, relabelled: bool = False, **changes: Any) -> Training:
        """Train to the end; more output than PRINT_LIMIT is a defect."""
        trainer = self.trainer(relabelled, **changes)
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
            records = [trainer.train_epoch() for _ in range(trainer.epochs)]
        if len(output.getvalue()) > PRINT_LIMIT:
            raise self.defect(f"it prints more than {PRINT_LIMIT:,} characters; put numbers into Step.logs")
        return Training(trainer.method, records[-1]["result"]["test_accuracy"])

    @cached_property
    def trained(self) -> Training:
        return self.train()

    @cached_property
    def relabelled(self) -> Training:
        """Training with other true labels."""
        return self.train(relabelled=True)

    # Lines of the source file -----------------------------------------------------------------------------------------
    def defect(self, text: str, member: str = "", line: int = 0) -> MethodDefect:
        """Return the error for a line of the file, or else for a member of the class."""
        return MethodDefect(Method, text, f"{self.entry.file}:{line or self.member(member)}")

    def member(self, name: str) -> int:
        """Return the line of a method of the class, or of a class inside it, if the file defines it; else of the class."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and node.name == self.entry.class_name:
                for item in node.body:
                    if isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name == name:
                        return min([item.lineno, *(decorator.lineno for decorator in item.decorator_list)])
        return self.entry.line

    def attribute(self, name: str) -> int:
        """Return the line where `self.<name>` is assigned or registered as a buffer; else that of the class."""
        text = self.entry.file.read_text(encoding="utf-8")
        assignment = rf"\.{name}\b *(:[^=\n]+)?[-+*/|&@]?=[^=]|\bregister_buffer\(\s*['\"]{name}['\"]"
        match = re.search(assignment, text)
        return text.count("\n", 0, match.start()) + 1 if match else self.entry.line

    def deepest(self, frames: traceback.StackSummary) -> int:
        """Return the line of the innermost of these frames in the method's own file, or 0."""
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == self.entry.file.resolve()]
        return (lines[-1] or 0) if lines else 0


def run_check(check: Callable[[Subject], str | None], subject: Subject) -> str | None:
    """Run one check and return its advice, if any; every error of the method becomes a MethodDefect with a line."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return check(subject)
    except MethodDefect:
        raise
    except MethodError as error:  # the file cannot be imported
        match = re.match(r"(.+?:\d+): (.*)", str(error), re.DOTALL)
        where, text = match.groups() if match else (f"{subject.entry.file}:{subject.entry.line}", str(error))
        raise MethodDefect(Method, text, where) from error
    except (Exception, SystemExit) as error:
        line = subject.deepest(traceback.extract_tb(error.__traceback__))
        raise subject.defect(describe(error), "training_step" if isinstance(error, Diverged) else "", line) from error


def describe(error: BaseException) -> str:
    """Return an error of the method's code as a sentence, with a hint where the interface was misunderstood."""
    if isinstance(error, Diverged):
        return f"{error}; look for a logarithm or a quotient that reaches 0"
    first = (str(error) or "no message").strip().splitlines()[0]
    hint = ""
    missing = re.search(r"'(Batch|Task|Clock|TrainingRows)' object has no attribute '(\w+)'", first)
    if missing:
        fields = {kind.__name__: ", ".join(f.name for f in dataclasses.fields(kind)) for kind in (Batch, Task, Clock)}
        truth = "label" in missing[2] or "target" in missing[2]
        hint = f"; it has {fields.get(missing[1], 'infer and reset_momentum')}"
        hint += ", and true labels are never handed to a method" if truth else ""
    return f"{type(error).__name__}: {first}{hint}"
