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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import interpolate

from benchmark.contract import vectors
from benchmark.contract.examiner import TRAIN, coloured_images, small_task
from benchmark.device import probe
from benchmark.files import Lock, is_locked
from benchmark.plan.profile import load_profile
from benchmark.plan.resolution import Override, resolve
from benchmark.run.backends.local import Worker
from benchmark.run.failures import is_out_of_memory, sentence
from benchmark.run.options import RunOptions
from benchmark.run.provenance import driver_version, environment, now
from benchmark.run.worker import card_number
from benchmark.speed import model, timing
from benchmark.speed.bare_loop import BareLoop
from benchmark.store import RunFolder
from benchmark.train.device import ready, release
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from benchmark.train.trainer import Hooks, Interrupted, Trainer, weights_digest
from datasets.views.recipes import CIFAR, FINE_GRAINED
from datasets.views.views import Views
from methods.base import Batch
from methods.registry import discover, load

SHORT = dataclasses.replace(TRAIN, epochs=2, batch=20, eval_every=2, tf32="off")
CLOSE = 1e-4  # of a loss, CPU against GPU, in full float32
GOLDEN = 1e-5  # of a golden number in float32; where the CPU is further off, ten times as far as it
LEVELS = 0.005  # of the values of a view may differ: near ties, nearest neighbours round otherwise
LARGE_LEVELS = 0.02  # of one at 224 px, which a CPU resamples by another kernel
WAITING = ("nepll",)  # it counts the rows that it forwards
RESUMED = ("proden", "pico", "cel", "nepll", "valen")  # queues, dropout, selected rows, a graph and draws
TIMED_STEPS = 20
RECORDED_STEPS = 2  # that the bare loop repeats in turn
LEAST = 0.7  # of the bare loop's speed; the modelled cards are above 0.8, below it the card waits for the host


class Failed(Exception):
    """What was promised does not hold here."""


class NotTried(Exception):
    """What it takes is not here."""


@dataclass(frozen=True)
class Trial:
    """One line of the certificate."""

    name: str
    sentence: str
    run: Callable[[torch.device], str]
    needs_card: bool = False  # a pretend one will not do


def trainer_on(
    device: torch.device, method: str, hooks: Hooks | None = None, draws: bool = False, **changes: Any
) -> Trainer:
    """The trainer of a method on the contract's small task; `draws`: with the dropout that `quick` leaves out."""
    dataset, candidates = small_task()
    entry = discover().get(method)
    settings = load(entry).Config
    dropout = [Override(method, "dropout", f"{settings.dropout:g}")] if draws and hasattr(settings, "dropout") else []
    spec = resolve(load_profile("quick"), entry, "digits", 0, dropout)
    spec = spec.with_train(**dataclasses.asdict(SHORT) | changes)
    return Trainer(spec, load(entry), dataset, candidates, device, hooks)


def methods() -> list[str]:
    return list(discover().entries)


def trained(trainer: Trainer) -> str:
    for _ in range(trainer.epochs):
        trainer.train_epoch()
    return weights_digest(trainer.method)


def card(device: torch.device) -> str:
    """Driver, card, and what torch is built for."""
    major, minor = torch.cuda.get_device_capability(device)
    size = torch.cuda.mem_get_info(device)[1] / 1e9
    made_for = f"torch {torch.__version__} for {', '.join(torch.cuda.get_arch_list())}"
    name = f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}, {size:.1f} GB"
    return f"{name}; driver {driver_version() or 'unknown'}; {made_for}"


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


def golden(device: torch.device) -> str:
    """Losses and state updates of all methods against numbers of the authors' code."""
    listed = vectors.cases_of_methods()
    if not listed:
        raise NotTried("this checkout has no tests/vectors")
    ready(device, "off")
    worst = 0.0
    for subject, case in listed:
        ours = vectors.deviation(subject, case, device)
        worst = max(worst, ours)
        if not ours <= GOLDEN and not ours <= 10 * (cpu := vectors.deviation(subject, case, torch.device("cpu"))):
            name = f"{subject} {case['op']} ({case['file']})"
            raise Failed(f"{name} is {ours:.1e} from the golden numbers, on the CPU {cpu:.1e}")
    return f"{len(listed)} cases of losses and state updates differ by at most {worst:.1e}"


def views(device: torch.device) -> str:
    """The plain view of small pictures bit for bit, the others but for a few values."""
    small = coloured_images(24, 5).images
    large = interpolate(small.float(), (256, 320), mode="bicubic").clamp(0, 255).to(torch.uint8)
    rows, sizes = torch.arange(24), torch.tensor([256, 320]).expand(24, 2)
    said = []
    for recipe, images, padded, bound in ((CIFAR, small, None, LEVELS), (FINE_GRAINED, large, sizes, LARGE_LEVELS)):
        maker = Views(recipe, 0)
        for name in ("plain", "weak", "strong", "distill"):
            ours, theirs = (maker(one, rows, (name,), 1, padded)[0] for one in (images.to(device), images))
            share = float((ours.cpu() != theirs).double().mean())
            said.append(f"{name} {100 * share:.2f} %")
            if share > (0 if name == "plain" and padded is None else bound):
                what = f"{100 * share:.2f} % of the values of the view {name} at {recipe.size} px"
                raise Failed(f"{what} differ from the CPU's")
    return f"values that differ from the CPU's at 32 px: {', '.join(said[:4])}; at 224 px: {', '.join(said[4:])}"


def repetition(device: torch.device) -> str:
    for method in methods():
        once, again = (trained(trainer_on(device, method, draws=True)) for _ in range(2))
        if once != again:
            raise Failed(f"{method}: two equal trainings end in different weights")
    return f"{len(methods())} methods, each trained twice: equal weights"


def resume(device: torch.device) -> str:
    for method in RESUMED:
        whole = trained(trainer_on(device, method, draws=True))
        with tempfile.TemporaryDirectory() as folder:
            if stopped_and_gone_on(device, method, RunFolder(Path(folder))) != whole:
                raise Failed(f"{method}: a training that was stopped and went on ends in other weights")
    return f"{', '.join(RESUMED)}: stopped after every second step, equal weights"


def every_second(steps: Iterator[int]) -> bool:
    return next(steps) % 2 == 0


def stopped_and_gone_on(device: torch.device, method: str, folder: RunFolder) -> str:
    for _ in range(50):
        trainer = trainer_on(device, method, Hooks(stop=partial(every_second, itertools.count(1))), draws=True)
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
        trainer = trainer_on(device, method, draws=True, epochs=20)
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
        if trainer_on(device, method, amp="bfloat16").train_epoch()["result"]["loss"] is None:
            raise Failed(f"{method}: the loss in bfloat16 is not finite")
    return f"{len(methods())} methods train in bfloat16 with finite losses"


def endless(trainer: Trainer) -> Iterator[Batch]:
    """Batches whose views are made as they are asked for, the same epoch again and again."""
    while True:
        trainer.step_in_epoch = 0
        yield from trainer.batches(trainer.order(trainer.epoch), 0)


def train(trainer: Trainer, batches: Iterator[Batch]) -> None:
    for batch in itertools.islice(batches, TIMED_STEPS):
        trainer.step(batch)


def pace(trainer: Trainer) -> tuple[float, float]:
    """Pictures per second of training, views included, and that as a part of the bare loop's; the two take turns."""
    trainer.begin_epoch()
    batches = endless(trainer)
    loop = BareLoop(trainer, list(itertools.islice(batches, RECORDED_STEPS)))

    def bare() -> None:
        for recording in itertools.islice(loop.recordings, TIMED_STEPS):
            loop.repeat(recording)

    clock = partial(timing.seconds, device=trainer.device)
    spent, _, times_faster = timing.compare(partial(train, trainer, batches), bare, 3, clock)
    return TIMED_STEPS * trainer.batch_size / spent, 1 / times_faster


def busy_share(trainer: Trainer) -> str:
    """Of the time of some steps, how much the card computes."""
    activity = torch.profiler.ProfilerActivity.CUDA
    if activity not in torch.profiler.supported_activities():
        return "busy share unknown to this torch"
    with torch.profiler.profile(activities=[activity]) as profiled:
        spent = timing.seconds(partial(train, trainer, endless(trainer)), trainer.device)
    kernels = [event for event in profiled.key_averages() if not event.is_user_annotation]  # spans around kernels
    return f"busy {100 * sum(event.self_device_time_total for event in kernels) / 1e6 / spent:.0f} %"


def speed(device: torch.device) -> str:
    """Pictures per second, beside the bare loop of the same networks, and busy share; networks and batch of `paper`."""
    said, slow = [], []
    for method, size in itertools.product(("proden", "cel"), model.STAND_IN):
        trainer = model.modelled_trainer(method, size, device)
        rate, part = pace(trainer)
        said.append(f"{method} {size} {rate:,.0f} pictures/s, {part:.2f} of the bare loop, {busy_share(trainer)}")
        if part < LEAST:
            slow.append(f"{method} at {size}")
        del trainer
        release(device)
    if slow:
        raise Failed(f"{', '.join(slow)} below {LEAST} of the bare loop's speed ({'; '.join(said)})")
    return "; ".join(said)


def memory(device: torch.device) -> str:
    """The heaviest methods at 224 px with batch 128."""
    said = []
    for method in ("nepll", "idgp"):
        reset_peak_memory(device)
        try:
            trainer = model.modelled_trainer(method, "224 px", device)
            trainer.step(trainer.batch(torch.arange(trainer.batch_size)))
            said.append(f"{method} {peak_memory_mb(device) / 1024:.1f} GiB")
            del trainer
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            said.append(f"{method} does not fit; use paper-bf16 or a smaller train.batch")
        release(device)
    return "peak in a step: " + ", ".join(said)


def fresh_worker(device: torch.device) -> str:
    """The worker of a slot finds the card that this process calls by the same name, also where it gives no number."""
    worker = Worker(str(device))
    try:
        place, number = worker.do("whereabouts", None, RunOptions(Path(), Path()))
    finally:
        worker.retire()
    if (place, number) != (str(device), card_number(device)):
        wanted = f"{device} {card_number(device)}".strip()
        raise Failed(f"the worker of {wanted} computes on {place} {number}".strip())
    return f"a fresh worker computes on {place} {number}".strip()


def _train_in_a_child(device: str) -> str:
    return trained(trainer_on(torch.device(device), "proden"))


def two_processes(device: torch.device) -> str:
    """Two trainings on one card at the same time, each in a fresh process, end as one alone does."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        digests = set(pool.map(_train_in_a_child, [str(device)] * 2))
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
    Trial("card", "Card and driver", card),
    Trial("arithmetic", "Products and convolutions are right", arithmetic),
    Trial("golden vectors", "Losses and state updates are the authors'", golden),
    Trial("losses", "First losses are the CPU's", losses),
    Trial("views", "Views are the CPU's", views),
    Trial("repetition", "The same training twice ends in the same weights", repetition),
    Trial("resume", "Stopped and gone on: the same weights", resume),
    Trial("waits", "A step waits for nothing", waits),
    Trial("mixed precision", "bfloat16 trains", mixed_precision),
    Trial("speed", "Throughput", speed, needs_card=True),
    Trial("memory", "Peak memory", memory, needs_card=True),
    Trial("fresh worker", "A slot has its card", fresh_worker, needs_card=True),
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
        except NotTried as error:
            status, text = "skip", str(error)
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
        "architectures": torch.cuda.get_arch_list() if cards else [],
        "tests": rows,
    }


def passed(document: dict[str, Any]) -> bool:
    return all(row["status"] != "FAIL" for row in document["tests"])
