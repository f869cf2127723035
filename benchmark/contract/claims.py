"""The contract that every method keeps, as a list of claims.

The contract test tries them on the methods of the tree, `check` on a plug-in. A claim that does not hold says what is
wrong, in which line of the method's own file, and what to do. How they are tried is in examination.py.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import math
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from benchmark.contract.examiner import (
    CLASSES,
    FULL,
    PRINT_LIMIT,
    ROWS,
    SINGLETONS,
    Claim,
    Defect,
    Subject,
    small_task,
)
from benchmark.device.pretend import PretendCuda
from benchmark.files import ROOT
from benchmark.store import RunFolder
from benchmark.trainer import checkpoint
from benchmark.trainer.device import global_state
from benchmark.trainer.stray_tensors import stray_tensors
from benchmark.trainer.trainer import Hooks, Interrupted, Trainer, TrainingRows, weights_digest
from methods.base import About, Clock, Method, Step, Task, ViewName
from methods.networks.backbones import SmallCNN
from methods.supervised import sees_truth

# Looks at the stop flag; an epoch has one after each of its six steps and one after all. So: within an epoch, after
# an epoch, between the last step and the end of an epoch, within the last epoch.
STOPS = (3, 14, 20, 31)
WANTED = 50.0  # per cent of the test images; a guess has 20
HUGE = 1e4
AT_START = global_state()  # before a method's file is imported

CLAIMS: list[Claim] = []


def claim(sentence: str, needs: str = "", member: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function is the claim of its name. It raises where the claim does not hold."""

    def add(test: Callable[..., Any]) -> Callable[..., Any]:
        CLAIMS.append(Claim(test.__name__, sentence, test, tuple(needs.split()), member))
        return test

    return add


# what it is ----------------------------------------------------------------------------------------------------------


@claim("The file imports; the class is a Method with a valid name, about, views and Config")
def interface(subject: Subject) -> None:
    cls = subject.cls
    if not (inspect.isclass(cls) and issubclass(cls, Method)):
        raise Defect(f"{subject.entry.class_name} is no subclass of methods.base.Method; make it one")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cls.name):
        raise Defect(
            f"the name {cls.name!r} must be lower-case letters and digits joined by dashes, such as 'my-method'"
        )
    about, kinds = getattr(cls, "about", None), ("PLL", "IDPLL", "control", "reference")
    if not isinstance(about, About):
        raise Defect('`about` is missing; write about = About("Title in tables", "PLL")')
    if about.kind not in kinds:
        raise Defect(f"about: the kind {about.kind!r} is none of {', '.join(kinds)}")
    known = get_args(ViewName)
    if not isinstance(cls.views, tuple) or not cls.views or any(view not in known for view in cls.views):
        raise Defect(f"`views` is {cls.views!r}; it must be a tuple of one or more of {', '.join(known)}")
    for member in ("training_step", "predict"):
        if getattr(cls, member) is getattr(Method, member):
            raise Defect(f"{cls.__name__} has no `{member}`; every method needs one")
    config = cls.Config
    if not dataclasses.is_dataclass(config) or not config.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise Defect(
            "Config must be a frozen dataclass: put @dataclass(frozen=True) above it", subject.member("Config")
        )
    unseen = {f.name for f in dataclasses.fields(config)} ^ set(subject.entry.config)
    if unseen:
        names = ", ".join(sorted(unseen))
        raise Defect(f"Config: {names} must be written as `name: type = default`", subject.member("Config"))
    config()


@claim("It is built from its default Config and has something to train", "interface", "__init__")
def builds(subject: Subject) -> None:
    method = _from_defaults(subject)
    if "_modules" not in vars(method) or not hasattr(method, "num_classes"):
        raise Defect("__init__ must begin with super().__init__(config, task)")
    if not any(p.requires_grad for group in method.param_groups() for p in group["params"]):
        raise Defect("there is no parameter to train; build a network in __init__, for example blocks.Classifier(task)")


@claim("It keeps no tensor outside parameters and persistent buffers", "builds")
def memory(subject: Subject) -> None:
    _no_stray_tensor(subject, _from_defaults(subject))


def _from_defaults(subject: Subject) -> Method:
    _, candidates = small_task()
    return subject.cls(subject.cls.Config(), Task(CLASSES, candidates, 5, 6, SmallCNN))


def _no_stray_tensor(subject: Subject, method: Method) -> None:
    for name, text in stray_tensors(method):
        raise Defect(text, subject.attribute(name))


@claim("It names no device and imports nothing that holds true labels")
def source(subject: Subject) -> None:
    for node in ast.walk(subject.tree):
        if isinstance(node, ast.Call) and _names_a_device(node):
            text = f"`{ast.unparse(node)}` names a device; take it from a tensor at hand, as in x.device"
            raise Defect(text, subject.line(node.lineno))
        roots: set[str] = set()
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            roots = {(node.module or "").split(".")[0]}
        for package in roots & {"datasets", "benchmark"}:
            text = f"a method must not import from `{package}`, where true labels are"
            raise Defect(text, subject.line(getattr(node, "lineno", 1)))


def _names_a_device(call: ast.Call) -> bool:
    """`.cuda()`, device="cuda:0", .to("cpu"), torch.device("cuda")."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    named = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    if called in ("to", "device"):
        named += call.args[:1]
    literals = [str(value.value) for value in named if isinstance(value, ast.Constant)]
    return called == "cuda" or any(re.fullmatch(r"(cuda|cpu|mps|xpu)(:\d+)?", text) for text in literals)


# one step ------------------------------------------------------------------------------------------------------------


def take_step(trainer: Trainer, index: Tensor) -> None:
    """One step of the trainer on the positions `index` (B,); a loss that is not finite raises."""
    trainer.step(trainer.batch(index))


@claim("The loss of a step is a finite scalar whose gradient reaches the parameters", "memory", "training_step")
def loss(subject: Subject) -> None:
    trainer = subject.started()
    method = trainer.method
    step = method.training_step(trainer.batch(trainer.order(0)[:12]), trainer.clock())
    if not isinstance(step, Step):
        raise Defect(f"training_step gives a {type(step).__name__}; end it with `return Step(loss)`")
    if not isinstance(step.loss, Tensor) or step.loss.shape != ():
        shape = tuple(step.loss.shape) if isinstance(step.loss, Tensor) else type(step.loss).__name__
        raise Defect(f"the loss must be a scalar tensor, not {shape}; take its mean over the batch")
    for name, value in step.logs.items():
        if not isinstance(value, Tensor) or value.shape != ():
            raise Defect(f"logs[{name!r}] must be a scalar tensor")
    if not torch.isfinite(step.loss):
        raise Defect(f"the first loss is {step.loss.item()}; look for a logarithm or quotient that reaches 0")
    if not step.loss.requires_grad:
        raise Defect("the loss has no gradient: a detach(), item() or no_grad() lies between the network and the loss")
    step.loss.backward()
    trained = [p for group in method.param_groups() for p in group["params"]]
    if not any(p.grad is not None and p.grad.any() for p in trained):
        raise Defect("the gradient of the loss reaches no parameter of param_groups(); the network would never change")
    _finite_gradients(method)


def _finite_gradients(method: Method) -> None:
    for name, parameter in method.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            raise Defect(f"the gradient of {name} is infinite or NaN")


@claim("predict gives finite (B, C) logits for any batch, one image included", "loss", "predict")
def prediction(subject: Subject) -> None:
    method, images = _ready_to_predict(subject)
    for count in (len(images), 2, 1):
        logits = method.predict(images[:count])
        if not isinstance(logits, Tensor) or logits.shape != (count, CLASSES):
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise Defect(f"predict gives {shape}; for {count} images of {CLASSES} classes it must give (B, C)")
        if not logits.is_floating_point() or not torch.isfinite(logits).all():
            raise Defect(f"predict must give finite floating-point logits, not {logits.dtype}, NaN or infinity")
        for name, extra in method.predictions(images[:count]).items():
            if extra.shape != (count, CLASSES):
                raise Defect(f"predictions()[{name!r}] has shape {tuple(extra.shape)}; ({count}, {CLASSES}) is needed")


@claim("predict treats every image by itself, whatever its neighbours and their order", "prediction", "predict")
def order(subject: Subject) -> None:
    method, images = _ready_to_predict(subject)
    together = method.predict(images)
    torch.manual_seed(1)
    if not _alike(method.predict(images), together):
        raise Defect("predict gives other logits for the same images when it is called again; it must not be random")
    swapped = torch.arange(len(images)).flip(0)
    if not _alike(method.predict(images[swapped]), together[swapped]):
        raise Defect("the logits of an image depend on its place in the batch; use nothing that mixes rows in predict")
    alone = torch.cat([method.predict(image[None]) for image in images[:4]])
    if not _alike(alone, together[:4]):
        raise Defect("the logits of an image depend on its neighbours; use nothing that mixes rows in predict")


@claim("predict, confidence, candidate_sets and diagnostics change nothing", "prediction", "predict")
def purity(subject: Subject) -> None:
    method, images = _ready_to_predict(subject)
    readers: dict[str, Callable[[], Any]] = {
        "predict": partial(method.predict, images),
        "predictions": partial(method.predictions, images),
        "confidence": method.confidence,
        "candidate_sets": method.candidate_sets,
        "diagnostics": method.diagnostics,
    }
    for name, read in readers.items():
        digest, attributes, lent = weights_digest(method), _plain_attributes(method), images.clone()
        read()
        if weights_digest(method) != digest:
            raise Defect(f"{name} changes parameters or buffers; update state in after_step only", subject.member(name))
        for key, value in _plain_attributes(method).items():
            if attributes.get(key) != value:
                raise Defect(f"{name} changes the attribute '{key}'; it must not leave a trace", subject.member(name))
        if not torch.equal(images, lent):
            raise Defect(f"{name} writes into the images it is given", subject.member(name))


def _alike(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding: sums over a batch of another shape are taken in another order."""
    return torch.allclose(one, other, rtol=1e-3, atol=1e-4)


def _ready_to_predict(subject: Subject) -> tuple[Method, Tensor]:
    """A method after two steps, in eval mode as the evaluation sets it, and a few test images."""
    trainer = subject.started()
    for index in trainer.order(0)[:24].chunk(2):
        take_step(trainer, index)
    images = next(iter(trainer.inputs.test_batches()))[:12]
    torch.manual_seed(0)
    return trainer.method.eval(), images.clone()


def _plain_attributes(method: Method) -> dict[str, Any]:
    """Numbers, texts and containers of them that the modules carry, modes included."""
    found = {}
    for path, module in method.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, bool | int | float | str | list | dict | set) and not name.startswith("_"):
                found[f"{path}.{name}".lstrip(".")] = copy.deepcopy(value)
    return found


@claim("What it tells of its state has the right shape", "loss")
def diagnostics(subject: Subject) -> None:
    method, _ = _ready_to_predict(subject)
    for name, value in (("confidence", method.confidence()), ("candidate_sets", method.candidate_sets())):
        if value is not None and (not isinstance(value, Tensor) or value.shape != (ROWS, CLASSES)):
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise Defect(f"{name}() gives {shape}; (N, C) = ({ROWS}, {CLASSES}) is needed", subject.member(name))
    for name, scalar in method.diagnostics().items():
        float(scalar)
        if not isinstance(name, str):
            raise Defect("the keys of diagnostics() must be texts", subject.member("diagnostics"))


@claim("A batch may have any size from two", "loss", "training_step")
def batches(subject: Subject) -> None:
    trainer = subject.started()
    for count in (2, 3, ROWS):
        take_step(trainer, trainer.order(0)[:count])


@claim("A batch may have singleton or full candidate sets only", "loss", "training_step")
def candidates(subject: Subject) -> None:
    trainer = subject.started()
    for rows in (SINGLETONS, FULL):
        take_step(trainer, torch.arange(ROWS)[rows])


@claim("Logits of ±10,000 give a finite loss and gradient", "loss", "training_step")
def extremes(subject: Subject) -> None:
    trainer = subject.started()
    method = trainer.method
    heads = [m for m in method.modules() if isinstance(m, nn.Linear) and m.out_features == CLASSES]
    with torch.no_grad():
        for head in heads:
            head.weight.mul_(HUGE / head.weight.abs().mean())
    for clock in clocks(trainer):
        batch = trainer.batch(torch.arange(16))
        method.zero_grad()
        step = method.training_step(batch, clock)
        if not torch.isfinite(step.loss):
            raise Defect(f"logits of ±10,000 make the loss {step.loss.item()}; use log_softmax or logsumexp")
        step.loss.backward()
        _finite_gradients(method)
        with torch.no_grad():
            method.after_step(batch, step, clock)


def clocks(trainer: Trainer) -> list[Clock]:
    """The beginning, the middle and the end of training: methods change their ways in between."""
    steps, total = trainer.steps_per_epoch, trainer.epochs
    return [Clock(epoch, epoch * steps, total, steps) for epoch in (0, total // 2, total - 1)]


@claim("It trains on another device than the CPU, all on that one device", "prediction diagnostics", "training_step")
def device(subject: Subject) -> str:
    """Tried on a pretend one. Waiting for it is no defect, but every line that waits in a step is named."""
    waits: dict[str, str] = {}
    with PretendCuda(sources=(subject.entry.file.parent,), lenient=True) as card:
        try:
            waits = _waits_on(card, subject)
        except Exception:
            if not card.mixed:  # else an effect of what was let pass
                raise
    if card.mixed:
        (where, what), *others = card.mixed.items()
        more = "".join(f"; {Path(place).name}: {said}" for place, said in others)
        raise Defect(what + more, str(ROOT / where))
    if set(waits.values()) <= {"nonzero"} and len(waits) <= 1:
        return ""  # rows chosen by their values must be counted, once
    named = "; ".join(f"{Path(where).name} ({what})" for where, what in waits.items())
    return f"in a step a GPU is waited for at {named}"


def _waits_on(card: PretendCuda, subject: Subject) -> dict[str, str]:
    """A step early, in the middle and late, hooks and an evaluation: what is waited for in a step, by line."""
    waits: dict[str, str] = {}
    trainer = subject.trainer(on="cuda")
    for clock in clocks(trainer):
        trainer.epoch = clock.epoch
        if clock.epoch:
            trainer.begin_epoch()
        batch = trainer.batch(torch.arange(8))
        card.reset()
        step = trainer.method.train().update(batch, trainer.optimizer, clock)
        waits |= {where: what for what, where in card.waits}
        if step.loss.device.type != "cuda":
            raise Defect("the loss is on the CPU while the batch is on another device")
    with torch.no_grad():
        trainer.method.on_epoch_end(trainer.clock(), TrainingRows(trainer))
    trainer.evaluator.evaluate(trainer.method, trainer.autocast())
    return waits


# whole trainings -----------------------------------------------------------------------------------------------------


@claim(
    "A training runs to its end, a last batch of two images included", "loss prediction diagnostics", "training_step"
)
def trains(subject: Subject) -> None:
    subject.whole  # noqa: B018  (kept for the claims below)


@claim("It keeps no tensor outside parameters and persistent buffers after training either", "trains")
def memory_after(subject: Subject) -> None:
    _no_stray_tensor(subject, subject.whole.trainer.method)


@claim("It leaves the global settings of torch alone", "trains")
def global_settings(subject: Subject) -> None:
    for name, value in global_state().items():
        if value != AT_START[name]:
            text = (
                f"{name} has become {value}; other methods' runs would change with it, so leave global settings alone"
            )
            raise Defect(text, subject.line(_line_that_sets(subject.tree)))


def _line_that_sets(tree: ast.Module) -> int:
    """Return the first line that looks like a change of global settings of torch, or 1."""
    for node in ast.walk(tree):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
        if re.match(r"torch\.(set_|backends\.|use_deterministic)", name):
            return getattr(node, "lineno", 1)
    return 1


@claim("It does not write into the batch or the task that it is lent", "trains", "training_step")
def inputs(subject: Subject) -> None:
    whole = subject.whole
    for name, line in whole.observer.writes.items():
        where = f"{subject.entry.file}{line}" if line else ""
        raise Defect(f"it writes into {name} in place; work on a copy, for example {name}.clone()", where)
    for name in whole.changed:
        raise Defect(f"it changes the content of {name}; work on a copy, for example {name}.clone()")


@claim(f"It prints no more than {PRINT_LIMIT // 1024} KB in thirty steps", "trains", "training_step")
def silence(subject: Subject) -> None:
    observer = subject.whole.observer
    if observer.printed > PRINT_LIMIT:
        where = f"{subject.entry.file}{observer.printed_at}" if observer.printed_at else ""
        raise Defect(f"it prints {observer.printed:,} characters in thirty steps; put numbers into Step.logs", where)


@claim("The same training twice ends in the same weights", "trains")
def determinism(subject: Subject) -> None:
    key = first_difference(subject.whole.trainer.method, subject.repeated.trainer.method)
    if key:
        where, what = _foreign_randomness(subject.tree)
        raise Defect(
            f"two trainings from the same seed differ in '{key}'; {what or 'something is random or depends on time'}: "
            f"draw with torch's global generator, which the trainer seeds before every step",
            subject.line(where) if where else "",
        )


def _foreign_randomness(tree: ast.Module) -> tuple[int, str]:
    """The first line that draws with Python's or numpy's generator, or reads a clock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if re.match(r"(random|np\.random|numpy\.random|time|secrets|os\.urandom|uuid)\b", text):
                return node.lineno, f"`{text}()` is not seeded"
    return 0, ""


@claim("It never sees true labels: other true labels, same weights", "determinism")
def truth(subject: Subject) -> None:
    if sees_truth(subject.cls):
        return
    key = first_difference(subject.whole.trainer.method, subject.relabelled.trainer.method)
    if key:
        raise Defect(f"with other true labels, but the same candidates, '{key}' ends otherwise: it has seen the labels")


@claim("Training that is stopped and goes on ends in the same weights", "determinism")
def resume(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        method = _stop_and_go(subject, RunFolder(Path(folder)))
    key = first_difference(subject.whole.trainer.method, method)
    if key:
        raise Defect(
            f"'{key}' differs after stops and restarts: some state is in no parameter and no buffer; "
            f"keep counters and tables as buffers (register_buffer)"
        )


def _stop_and_go(subject: Subject, folder: RunFolder) -> Method:
    """A training that is stopped again and again, each time going on from the file with fresh objects."""
    looks = 0

    def stop() -> bool:
        nonlocal looks
        looks += 1
        return looks in STOPS

    while True:
        trainer = subject.trainer(hooks=Hooks(stop, checkpoint_seconds=math.inf))
        _check_saved_state(trainer, folder)
        try:
            trainer.run(folder, "contract")
            return trainer.method
        except Interrupted:
            continue


def _check_saved_state(trainer: Trainer, folder: RunFolder) -> None:
    """What a stop left behind fits a fresh method. (The trainer would set it aside and begin anew.)"""
    try:
        state = checkpoint.read(folder.path / checkpoint.CURRENT, "contract")
    except FileNotFoundError:
        return
    except checkpoint.DamagedCheckpoint as error:
        raise Defect(f"its saved state cannot be read: {error}; keep tensors and plain values only") from None
    reason = trainer.misfit(state, folder.epochs())
    if reason:
        raise Defect(f"its saved state does not fit a fresh method: {reason}; buffers must keep their first shape")


def first_difference(one: Method, other: Method) -> str:
    """The first entry of the state dicts that is not equal bit for bit, or nothing."""
    if weights_digest(one) == weights_digest(other):
        return ""
    ours, theirs = one.state_dict(), other.state_dict()
    for key in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(key), theirs.get(key)
        if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)):
            return key
    return "a sign or a NaN"


@claim("It learns: well above chance on an easy task in thirty steps, or else in 120", "trains", "training_step")
def learning(subject: Subject) -> None:
    reached = subject.whole.accuracy
    if reached < WANTED:
        trainer = subject.trainer(epochs=20, eval_every=20)
        records = [trainer.train_epoch() for _ in range(trainer.epochs)]
        reached = records[-1]["result"]["test_accuracy"]
    if reached < WANTED:
        raise Defect(
            f"{reached:.0f} % of the test images are right after 120 steps on an easy task, where a guess has "
            f"{100 / CLASSES:.0f} %; does the loss fall, and does predict use the network that is trained?"
        )


@claim("It trains in mixed precision (bfloat16)", "trains", "training_step")
def mixed_precision(subject: Subject) -> None:
    trainer = subject.trainer(amp="bfloat16", epochs=3, batch=ROWS // 2)
    for _ in range(trainer.epochs):
        trainer.train_epoch()
