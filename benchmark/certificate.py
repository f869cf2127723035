"""`doctor --gpu`: what is promised of a card, tried on it in two or three minutes; a JSON to attach to a report.

Every test takes a device and returns what it saw, or raises `Failed` with the reason. All that needs no real card is also
tried on the pretend device by the tests of this project.
"""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmark.contract.examiner import TRAIN, coloured_images, small_task
from benchmark.device import probe
from benchmark.files import Lock, is_locked
from benchmark.plan.profile import load_profile
from benchmark.plan.resolution import resolve
from benchmark.run.failures import is_out_of_memory, sentence
from benchmark.run.provenance import environment, now
from benchmark.speed import model
from benchmark.store import RunFolder
from benchmark.train.device import ready, release
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from benchmark.train.trainer import Hooks, Interrupted, Trainer, weights_digest
from datasets.views.recipes import CIFAR
from datasets.views.views import Views
from methods.registry import discover, load

SHORT = dataclasses.replace(TRAIN, epochs=2, batch=20, eval_every=2, tf32="off")
CLOSE = 1e-4  # of a loss, CPU against GPU, in full float32
LEVELS = 0.005  # of the values of a view may differ: near ties, nearest neighbours round otherwise
WAITING = ("nepll",)  # it counts the rows that it forwards
RESUMED = ("proden", "pico", "cel", "nepll")
TIMED_STEPS = 20


class Failed(Exception):
    """What was promised does not hold here."""


@dataclass(frozen=True)
class Trial:
    """One line of the certificate."""

    name: str
    sentence: str
    run: Callable[[torch.device], str]
    needs_card: bool = False  # a pretend one will not do


def trainer_on(device: torch.device, method: str, hooks: Hooks | None = None, **changes: Any) -> Trainer:
    """The trainer of a method on the contract's small task."""
    dataset, candidates = small_task()
    spec = resolve(load_profile("quick"), discover().get(method), "digits", seed=0)
    spec = spec.with_train(**dataclasses.asdict(SHORT) | changes)
    return Trainer(spec, load(discover().get(method)), dataset, candidates, device, hooks)


def methods() -> list[str]:
    return list(discover().entries)


def trained(trainer: Trainer) -> str:
    for _ in range(trainer.epochs):
        trainer.train_epoch()
    return weights_digest(trainer.method)


def arithmetic(device: torch.device) -> str:
    """A product and a convolution against the CPU's."""
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(8, 16, 12, 12, generator=generator), torch.randn(32, 16, 3, 3, generator=generator)
    matrix = torch.randn(200, 300, generator=generator)
    ready(device, "off")
    for name, ours, theirs in (
        ("a product", (matrix.to(device) @ matrix.to(device).T).cpu(), matrix @ matrix.T),
        ("a convolution", torch.conv2d(x.to(device), weight.to(device)).cpu(), torch.conv2d(x, weight)),
    ):
        difference = float((ours - theirs).abs().max() / theirs.abs().max())
        if not difference < 1e-5:
            raise Failed(f"{name} is {difference:.1e} from the CPU's, relative to its largest value")
    return "a product and a convolution are the CPU's to 1e-5"


def losses(device: torch.device) -> str:
    """The first step of every method, whose views are the CPU's."""
    worst, drawing = 0.0, []
    for method in methods():
        seen = []
        for where, seed in ((torch.device("cpu"), 1), (torch.device("cpu"), 2), (device, 1)):
            trainer = trainer_on(where, method)
            trainer.begin_epoch()
            batch = trainer_on(torch.device("cpu"), method).batch(torch.arange(20))
            moved = dataclasses.replace(
                batch, views=tuple(view.to(where) for view in batch.views), candidates=batch.candidates.to(where),
                index=batch.index.to(where),
            )  # fmt: skip
            torch.manual_seed(seed)
            seen.append(float(trainer.method.train().training_step(moved, trainer.clock()).loss.detach()))
        cpu, again, ours = seen
        if cpu != again:  # random numbers in the step: a GPU draws others
            drawing.append(method)
            continue
        difference = abs(ours - cpu) / max(abs(cpu), 1e-3)
        worst = max(worst, difference)
        if not difference < CLOSE:
            raise Failed(f"{method}: the first loss is {ours:.6g}, on the CPU {cpu:.6g}")
    aside = f"; {', '.join(drawing)} draw random numbers in a step and are left out" if drawing else ""
    return f"first losses differ by at most {worst:.1e}{aside}"


def views(device: torch.device) -> str:
    """The plain view bit for bit, the others but for a few values."""
    images, rows = coloured_images(60, 5).images, torch.arange(60)
    maker = Views(dataclasses.replace(CIFAR, size=images.shape[-1]), 0)
    shares = []
    for name in ("plain", "weak", "strong", "distill"):
        (ours,), (theirs,) = maker(images.to(device), rows, (name,), 1), maker(images, rows, (name,), 1)
        share = float((ours.cpu() != theirs).double().mean())
        shares.append(f"{name} {100 * share:.2f} %")
        if share > (0 if name == "plain" else LEVELS):
            raise Failed(f"{100 * share:.2f} % of the values of the view {name} differ from the CPU's")
    return f"values that differ from the CPU's: {', '.join(shares)}"


def repetition(device: torch.device) -> str:
    for method in methods():
        if trained(trainer_on(device, method)) != trained(trainer_on(device, method)):
            raise Failed(f"{method}: two equal trainings end in different weights")
    return f"{len(methods())} methods, each trained twice: equal weights"


def resume(device: torch.device) -> str:
    for method in RESUMED:
        whole = trained(trainer_on(device, method))
        with tempfile.TemporaryDirectory() as folder:
            if stopped_and_gone_on(device, method, RunFolder(Path(folder))) != whole:
                raise Failed(f"{method}: a training that was stopped and went on ends in other weights")
    return f"{', '.join(RESUMED)}: stopped after every second step, equal weights"


def every_second(steps: Iterator[int]) -> bool:
    return next(steps) % 2 == 0


def stopped_and_gone_on(device: torch.device, method: str, folder: RunFolder) -> str:
    for _ in range(50):
        trainer = trainer_on(device, method, Hooks(stop=partial(every_second, itertools.count(1))))
        try:
            trainer.run(folder, "certificate")
        except Interrupted:
            continue
        return weights_digest(trainer.method)
    raise Failed(f"{method}: it never came to its end")


def waits(device: torch.device) -> str:
    """torch itself raises where a step waits."""
    for method in methods():
        if method in WAITING:
            continue
        trainer = trainer_on(device, method, epochs=20)
        trainer.epoch = 15
        trainer.begin_epoch()
        batch = trainer.batch(torch.arange(20))
        trainer.step(batch)
        torch.cuda.set_sync_debug_mode("error")
        try:
            trainer.step(batch)
        except RuntimeError as error:
            raise Failed(f"{method}: a step waits for the card ({sentence(error)})") from None
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return f"no step waits for the card; {', '.join(WAITING)} may"


def mixed_precision(device: torch.device) -> str:
    for method in methods():
        for record in (trainer_on(device, method, amp="bfloat16").train_epoch(),):
            if record["result"]["loss"] is None:
                raise Failed(f"{method}: the loss in bfloat16 is not finite")
    return f"{len(methods())} methods train in bfloat16 with finite losses"


def speed(device: torch.device) -> str:
    """Pictures per second and busy share of the card, networks and batch of `paper`."""
    from torch.profiler import ProfilerActivity, profile

    said = []
    for method, size in itertools.product(("proden", "cel"), model.STAND_IN):
        trainer = model.modelled_trainer(method, size)
        trainer.begin_epoch()
        batches = itertools.cycle(trainer.batches(trainer.order(0), 0))
        for _ in range(3):
            trainer.step(next(batches))
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            started = time.perf_counter()
            for _ in range(TIMED_STEPS):
                trainer.step(next(batches))
            torch.cuda.synchronize()
            spent = time.perf_counter() - started
        busy = sum(event.self_device_time_total for event in profiled.key_averages()) / 1e6
        rate = TIMED_STEPS * trainer.batch_size / spent
        said.append(f"{method} {size} {rate:,.0f} pictures/s, busy {100 * min(busy / spent, 1):.0f} %")
        del trainer, batches
        release(device)
    return "; ".join(said)


def memory(device: torch.device) -> str:
    """The heaviest methods at 224 px with batch 128."""
    said = []
    for method in ("nepll", "idgp"):
        reset_peak_memory(device)
        try:
            trainer = model.modelled_trainer(method, "224 px")
            trainer.step(trainer.batch(torch.arange(trainer.batch_size)))
            said.append(f"{method} {peak_memory_mb(device) / 1024:.1f} GiB")
            del trainer
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            said.append(f"{method} does not fit; use paper-bf16 or a smaller train.batch")
        release(device)
    return "peak in a step: " + ", ".join(said)


def _train_in_a_child(device: str, answers: Any) -> None:
    answers.put(trained(trainer_on(torch.device(device), "proden")))


def two_processes(device: torch.device) -> str:
    """Two trainings on one card at the same time, each in a fresh process, end as one alone does."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    children = [context.Process(target=_train_in_a_child, args=(str(device), answers)) for _ in range(2)]
    for child in children:
        child.start()
    digests = {answers.get(timeout=300) for _ in children}
    for child in children:
        child.join()
    if digests != {trained(trainer_on(device, "proden"))}:
        raise Failed("two trainings at once do not end as one alone does")
    return "two trainings at once end as one alone does"


def _hold(path: str, ready_to_look: Any, done: Any) -> None:
    lock = Lock(Path(path))
    lock.acquire()
    ready_to_look.set()
    done.wait(60)
    lock.release()


def lock_in(folder: Path) -> str:
    """Whether a lock in the results folder keeps another process out, and is free when its holder is gone."""
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    path = folder / ".doctor.lock"
    child = context.Process(target=_hold, args=(str(path), held, done))
    child.start()
    try:
        if not held.wait(60):
            raise Failed("a child process could not take a lock there")
        if not is_locked(path) or Lock(path).acquire():
            raise Failed(f"{folder} does not keep locks: two processes could do one run; choose another with --results")
    finally:
        done.set()
        child.join()
    lock = Lock(path)
    if not lock.acquire():
        raise Failed("a lock stays although its process is gone")
    lock.release()
    path.unlink()
    return f"locks work in {folder}"


TESTS = (
    Trial("arithmetic", "Products and convolutions are right", arithmetic),
    Trial("losses", "Losses are the CPU's", losses),
    Trial("views", "Views are the CPU's", views),
    Trial("repetition", "The same training twice ends in the same weights", repetition),
    Trial("resume", "Stopped and gone on: the same weights", resume),
    Trial("waits", "A step waits for nothing", waits, needs_card=True),
    Trial("mixed precision", "bfloat16 trains", mixed_precision),
    Trial("speed", "Throughput", speed, needs_card=True),
    Trial("memory", "Peak memory", memory, needs_card=True),
    Trial("two processes", "Two runs on one card", two_processes, needs_card=True),
)


def certify(
    device: torch.device, results: Path, tell: Callable[[str], None], tests: tuple[Trial, ...] = TESTS
) -> dict[str, Any]:
    """All tests on one card, in order; a failed one does not stop the others."""
    whole = (*tests, Trial("locks", "Locks in the results folder", lambda _: lock_in(results)))
    rows = []
    for test in whole:
        started = time.perf_counter()
        try:
            status, text = "pass", test.run(device)
        except Failed as error:
            status, text = "FAIL", str(error)
        except Exception as error:  # whatever a driver does becomes a line
            status, text = "FAIL", sentence(error)
        seconds = round(time.perf_counter() - started, 1)
        rows.append({"test": test.name, "status": status, "text": text, "seconds": seconds})
        tell(f"  {status:<5} {test.sentence}: {text} ({seconds:.0f} s)")
        release(device)
    cards = [dataclasses.asdict(card) for card in probe.cards()] if device.type == "cuda" else []
    return {
        "kind": "gpu certificate",
        "date": now(),
        "environment": environment(str(device)),
        "cards": cards,
        "tests": rows,
    }


def passed(document: dict[str, Any]) -> bool:
    return all(row["status"] == "pass" for row in document["tests"])
