"""Checks that every method must pass, as plain functions that raise `MethodDefect` with file, line and advice.

The tests run them on the built-in methods, `check FILE` on a plug-in. A check may return advice without a defect.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import math
import re
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmark.contract.pretend import PretendCuda
from benchmark.contract.subject import CLASSES, FULL, ROWS, SINGLETONS, Subject, small_task
from benchmark.errors import MethodDefect
from benchmark.files import ROOT
from benchmark.store import StoredRun
from benchmark.trainer import checkpoint
from benchmark.trainer.device import changed_settings
from benchmark.trainer.guard import stray_tensors
from benchmark.trainer.trainer import Hooks, Interrupted, Trainer, TrainingRows, weights_digest
from methods.base import About, Clock, Method, Step, Task, ViewName
from methods.networks.backbones import SmallCNN
from methods.supervised import sees_truth

# Calls of the stop hook that stop the training; an epoch has one after each of its six steps and one after all. So:
# within an epoch, after an epoch, between the last step and the end of an epoch, within the last epoch.
STOPS = (3, 14, 20, 31)
REQUIRED_ACCURACY = 50.0  # per cent of the test images; chance is 20
HUGE = 1e4


# The class and its source -------------------------------------------------------------------------------------------


def check_interface(subject: Subject) -> None:
    """Check that the class is a Method with a valid name, about, views and Config."""
    cls = subject.cls
    if not (inspect.isclass(cls) and issubclass(cls, Method)):
        raise subject.defect(
            f"{subject.entry.class_name} is not a subclass of methods.base.Method; derive it from Method"
        )
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cls.name):
        raise subject.defect(
            f"the name {cls.name!r} must be lower-case letters and digits joined by dashes, such as 'my-method'"
        )
    about, kinds = getattr(cls, "about", None), ("PLL", "IDPLL", "control", "reference")
    if not isinstance(about, About):
        raise subject.defect('`about` is missing; write about = About("Title in tables", "PLL")')
    if about.kind not in kinds:
        raise subject.defect(f"about: the kind {about.kind!r} is none of {', '.join(kinds)}")
    view_names = get_args(ViewName)
    if not isinstance(cls.views, tuple) or not cls.views or any(view not in view_names for view in cls.views):
        raise subject.defect(f"`views` is {cls.views!r}; it must be a tuple of one or more of {', '.join(view_names)}")
    for member in ("training_step", "predict"):
        if getattr(cls, member) is getattr(Method, member):
            raise subject.defect(f"{cls.__name__} has no `{member}`; every method needs one")
    config = cls.Config
    if not dataclasses.is_dataclass(config) or not config.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise subject.defect("Config must be a frozen dataclass: put @dataclass(frozen=True) above it", "Config")
    unreadable = {f.name for f in dataclasses.fields(config)} ^ set(subject.entry.config)
    if unreadable:
        names = ", ".join(sorted(unreadable))
        raise subject.defect(f"Config: {names} must be written as `name: type = default`", "Config")
    config()


def check_source(subject: Subject) -> None:
    """Check that the file names no device and imports nothing that holds true labels."""
    for node in ast.walk(subject.tree):
        if isinstance(node, ast.Call) and _names_a_device(node):
            text = f"`{ast.unparse(node)}` names a device; take it from a tensor at hand, as in x.device"
            raise subject.defect(text, line=node.lineno)
        packages: set[str] = set()
        if isinstance(node, ast.Import):
            packages = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            packages = {(node.module or "").split(".")[0]}
        for package in packages & {"datasets", "benchmark"}:
            text = f"a method must not import from `{package}`, where true labels are"
            raise subject.defect(text, line=getattr(node, "lineno", 1))


def _names_a_device(call: ast.Call) -> bool:
    """Return whether a call names a device: `.cuda()`, device="cuda:0", .to("cpu"), torch.device("cuda")."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    arguments = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
    if function in ("to", "device"):
        arguments += call.args[:1]
    literals = [str(value.value) for value in arguments if isinstance(value, ast.Constant)]
    return function == "cuda" or any(re.fullmatch(r"(cuda|cpu|mps|xpu)(:\d+)?", text) for text in literals)


def check_construction(subject: Subject) -> None:
    """Check that the default Config builds a method with something to train and no tensor outside its state dict."""
    _, candidates = small_task()
    method = subject.cls(subject.cls.Config(), Task(CLASSES, candidates, 5, 6, SmallCNN))
    if "_modules" not in vars(method) or not hasattr(method, "num_classes"):
        raise subject.defect("__init__ must begin with super().__init__(config, task)", "__init__")
    if not any(p.requires_grad for group in method.param_groups() for p in group["params"]):
        raise subject.defect(
            "there is no parameter to train; build a network in __init__, for example blocks.Classifier(task)",
            "__init__",
        )
    for name, text in stray_tensors(method):
        raise subject.defect(text, line=subject.attribute(name))


# One step -----------------------------------------------------------------------------------------------------------


def check_loss(subject: Subject) -> None:
    """Check that the loss of a step is a finite scalar whose gradient reaches the parameters."""
    trainer = subject.started()
    method = trainer.method
    step = method.training_step(trainer.batch(trainer.order(0)[:12]), trainer.clock())
    defect = partial(subject.defect, member="training_step")
    if not isinstance(step, Step):
        raise defect(f"training_step gives a {type(step).__name__}; end it with `return Step(loss)`")
    if not isinstance(step.loss, Tensor) or step.loss.shape != ():
        raise defect(f"the loss must be a scalar tensor, not {_shape(step.loss)}; take its mean over the batch")
    for name, value in step.logs.items():
        if not isinstance(value, Tensor) or value.shape != ():
            raise defect(f"logs[{name!r}] must be a scalar tensor")
    if not torch.isfinite(step.loss):
        raise defect(f"the first loss is {step.loss.item()}; look for a logarithm or quotient that reaches 0")
    if not step.loss.requires_grad:
        raise defect("the loss has no gradient: a detach(), item() or no_grad() is between the network and the loss")
    step.loss.backward()
    parameters = [p for group in method.param_groups() for p in group["params"]]
    if not any(p.grad is not None and p.grad.any() for p in parameters):
        raise defect("the gradient of the loss reaches no parameter of param_groups(); the network would never change")
    _finite_gradients(subject, method)


def _shape(value: Any) -> tuple[int, ...] | str:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _finite_gradients(subject: Subject, method: Method) -> None:
    for name, parameter in method.named_parameters():
        if parameter.grad is not None and not torch.isfinite(parameter.grad).all():
            raise subject.defect(f"the gradient of {name} is infinite or NaN", "training_step")


def check_predict(subject: Subject) -> None:
    """Check that predict gives finite (B, C) logits for any batch, one image included."""
    method, images = _ready_to_predict(subject)
    for count in (len(images), 2, 1):
        logits = method.predict(images[:count])
        if not isinstance(logits, Tensor) or logits.shape != (count, CLASSES):
            text = f"predict gives {_shape(logits)}; for {count} images of {CLASSES} classes it must give (B, C)"
            raise subject.defect(text, "predict")
        if not logits.is_floating_point() or not torch.isfinite(logits).all():
            text = f"predict must give finite floating-point logits, not {logits.dtype}, NaN or infinity"
            raise subject.defect(text, "predict")
        for name, extra in method.predictions(images[:count]).items():
            if extra.shape != (count, CLASSES):
                text = f"predictions()[{name!r}] has shape {tuple(extra.shape)}; ({count}, {CLASSES}) is needed"
                raise subject.defect(text, "predictions")


def _ready_to_predict(subject: Subject) -> tuple[Method, Tensor]:
    """Return a method after two steps, in eval mode as the evaluation sets it, and a few test images."""
    trainer = subject.started()
    for index in trainer.order(0)[:24].chunk(2):
        trainer.step(trainer.batch(index))
    images = next(iter(trainer.inputs.test_batches()))[:12]
    torch.manual_seed(0)
    return trainer.method.eval(), images.clone()


def check_predict_by_image(subject: Subject) -> None:
    """Check that predict treats every image by itself, whatever its neighbours and their order."""
    method, images = _ready_to_predict(subject)
    together = method.predict(images)
    torch.manual_seed(1)
    for logits, expected, text in (
        (method.predict(images), together, "are random"),
        (method.predict(images.flip(0)).flip(0), together, "depend on an image's place in the batch"),
        (torch.cat([method.predict(image[None]) for image in images[:4]]), together[:4], "depend on its neighbours"),
    ):
        if not torch.allclose(logits, expected, rtol=1e-3, atol=1e-4):  # sums are taken in another order
            raise subject.defect(
                f"the logits of predict {text}; every image must get its own, always the same", "predict"
            )


def check_no_side_effects(subject: Subject) -> None:
    """Check that predict, confidence, candidate_sets and diagnostics change nothing."""
    method, images = _ready_to_predict(subject)
    readers: dict[str, Callable[[], Any]] = {
        "predict": partial(method.predict, images),
        "predictions": partial(method.predictions, images),
        "confidence": method.confidence,
        "candidate_sets": method.candidate_sets,
        "diagnostics": method.diagnostics,
    }
    for name, read in readers.items():
        digest, attributes, original = weights_digest(method), _plain_attributes(method), images.clone()
        read()
        if weights_digest(method) != digest:
            raise subject.defect(f"{name} changes parameters or buffers; update state in after_step only", name)
        for key, value in _plain_attributes(method).items():
            if attributes.get(key) != value:
                raise subject.defect(f"{name} changes the attribute '{key}'; it must have no side effect", name)
        if not torch.equal(images, original):
            raise subject.defect(f"{name} writes into the images it is given", name)


def _plain_attributes(method: Method) -> dict[str, Any]:
    """Return numbers, texts and containers of them that the modules have as attributes, modes included."""
    return {
        f"{path}.{name}".lstrip("."): copy.deepcopy(value)
        for path, module in method.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, bool | int | float | str | list | dict | set) and not name.startswith("_")
    }


def check_diagnostics(subject: Subject) -> None:
    """Check that confidence, candidate_sets and diagnostics have the right shapes."""
    method, _ = _ready_to_predict(subject)
    for name, value in (("confidence", method.confidence()), ("candidate_sets", method.candidate_sets())):
        if value is not None and (not isinstance(value, Tensor) or value.shape != (ROWS, CLASSES)):
            raise subject.defect(f"{name}() gives {_shape(value)}; (N, C) = ({ROWS}, {CLASSES}) is needed", name)
    for name, scalar in method.diagnostics().items():
        float(scalar)
        if not isinstance(name, str):
            raise subject.defect("the keys of diagnostics() must be texts", "diagnostics")


def check_batches(subject: Subject) -> None:
    """Check that a batch may have any size from two, and singleton or full candidate sets only."""
    trainer = subject.started()
    for count in (2, 3, ROWS):
        trainer.step(trainer.batch(trainer.order(0)[:count]))
    for rows in (SINGLETONS, FULL):
        trainer.step(trainer.batch(torch.arange(ROWS)[rows]))


def check_extreme_logits(subject: Subject) -> None:
    """Check that logits of ±10,000 give a finite loss and gradient."""
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
            text = f"logits of ±10,000 make the loss {step.loss.item()}; use log_softmax or logsumexp"
            raise subject.defect(text, "training_step")
        step.loss.backward()
        _finite_gradients(subject, method)
        with torch.no_grad():
            method.after_step(batch, step, clock)


def clocks(trainer: Trainer) -> list[Clock]:
    """Return the beginning, the middle and the end of training; methods change their behaviour in between."""
    steps, total = trainer.steps_per_epoch, trainer.epochs
    return [Clock(epoch, epoch * steps, total, steps) for epoch in (0, total // 2, total - 1)]


class ReadOnly(TorchFunctionMode):
    """Raise MethodDefect at the line that writes into one of these tensors."""

    def __init__(self, subject: Subject, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.subject, self.tensors = subject, tensors
        self.versions = {name: tensor._version for name, tensor in tensors.items()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for name, tensor in self.tensors.items():
            if tensor._version != self.versions[name]:
                line = self.subject.deepest(traceback.extract_stack())
                text = f"it writes into {name} in place; work on a copy, for example {name}.clone()"
                raise self.subject.defect(text, "training_step", line)
        return result


def check_inputs(subject: Subject) -> None:
    """Check that the method writes into neither the batch nor the task in any step."""
    trainer = subject.trainer()
    for _ in range(trainer.epochs):
        trainer.begin_epoch()
        for batch in trainer.batches(trainer.order(trainer.epoch), 0):
            tensors = {f"batch.views[{k}]": view for k, view in enumerate(batch.views)}
            tensors |= {"batch.candidates": batch.candidates, "batch.index": batch.index}
            tensors["task.candidates"] = trainer.candidates
            copies = {name: tensor.clone() for name, tensor in tensors.items()}
            with ReadOnly(subject, tensors):
                trainer.step(batch)
            for name, tensor in tensors.items():  # writes through `data` or NumPy have no version
                if not torch.equal(tensor, copies[name]):
                    text = f"it changes the content of {name}; work on a copy, for example {name}.clone()"
                    raise subject.defect(text, "training_step")
        trainer.end_epoch()
        trainer.epoch, trainer.step_in_epoch = trainer.epoch + 1, 0


def check_device(subject: Subject) -> str | None:
    """Check that it trains on another device than the CPU. The advice names lines of a step that wait for the device."""
    with PretendCuda(sources=(subject.entry.file.parent,), collects=True) as device:
        try:
            waits = _waits_in_steps(subject, device)
        except Exception:
            if not device.mixed:  # otherwise it may follow from an operation that CUDA would have refused
                raise
    if device.mixed:
        (where, text), *others = device.mixed.items()
        text += "".join(f"; {Path(place).name}: {other}" for place, other in others)
        raise MethodDefect(Method, text, str(ROOT / where))
    if set(waits.values()) <= {"nonzero"} and len(waits) <= 1:
        return None  # rows chosen by their values must be counted, once
    lines = "; ".join(f"{Path(where).name} ({what})" for where, what in waits.items())
    return f"in a step a GPU is waited for at {lines}"


def _waits_in_steps(subject: Subject, device: PretendCuda) -> dict[str, str]:
    """Take steps, run the hooks and evaluate; return the lines of a step that wait for the device."""
    waits: dict[str, str] = {}
    trainer = subject.trainer(on="cuda")
    for clock in clocks(trainer):
        trainer.epoch = clock.epoch
        if clock.epoch:
            trainer.begin_epoch()
        batch = trainer.batch(torch.arange(8))
        device.waits.clear()
        step = trainer.method.train().update(batch, trainer.optimizer, clock)
        waits |= {where: what for what, where in device.waits}
        if step.loss.device.type != "cuda":
            raise subject.defect("the loss is on the CPU while the batch is on another device", "training_step")
    with torch.no_grad():
        trainer.method.on_epoch_end(trainer.clock(), TrainingRows(trainer))
    trainer.evaluator.evaluate(trainer.method, trainer.autocast())
    return waits


# Whole trainings ----------------------------------------------------------------------------------------------------


def check_training(subject: Subject) -> str | None:
    """Check that a training runs to its end, prints little, and leaves no tensor outside the state dict."""
    for name, text in stray_tensors(subject.trained.method):
        raise subject.defect(text, line=subject.attribute(name))
    initial = subject.trainer().method.state_dict()
    for name, value in subject.trained.method.state_dict().items():
        module, _, buffer = name.rpartition(".")
        if buffer == "num_batches_tracked" and name in initial and torch.equal(value, initial[name]):
            return (
                f"{module} has not updated its batch-norm statistics in the whole training; ema_update averages "
                f"parameters only, so a copy that predicts in eval mode should also copy the buffers of its source"
            )
    return None


def check_global_settings(subject: Subject) -> None:
    """Check that the method leaves the global settings of torch alone."""
    _ = subject.trained
    for name, change in changed_settings().items():
        text = f"{name} has become {change}; runs of other methods would change, so leave global settings alone"
        line, _ = _line_of(subject.tree, r"torch\.(set_|backends\.|use_deterministic)")
        raise subject.defect(text, line=line)


def _line_of(tree: ast.Module, pattern: str) -> tuple[int, str]:
    """Return the first line that calls or assigns what the pattern matches, with its name; (0, "") without one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.Assign):
            name = ast.unparse(node.func if isinstance(node, ast.Call) else node.targets[0])
            if re.match(pattern, name):
                return node.lineno, name
    return 0, ""


def check_determinism(subject: Subject) -> None:
    """Check that the same training twice ends in the same weights."""
    first = subject.trained.method
    if not first_difference(first, subject.relabelled.method):
        return  # a training with other true labels that ends alike is as good
    key = first_difference(first, subject.train().method)
    if key:
        line, name = _line_of(subject.tree, r"(random|np\.random|numpy\.random|time|secrets|os\.urandom|uuid)\b")
        cause = f"`{name}()` is not seeded" if name else "something is random or depends on time"
        raise subject.defect(
            f"two trainings from the same seed differ in '{key}'; {cause}: "
            f"draw with torch's global generator, which the trainer seeds before every step",
            line=line,
        )


def check_no_true_labels(subject: Subject) -> None:
    """Check that other true labels, with the same candidate sets, give the same weights."""
    key = first_difference(subject.trained.method, subject.relabelled.method)
    if key and not sees_truth(subject.cls):
        raise subject.defect(
            f"with other true labels, but the same candidates, '{key}' ends otherwise: it has seen the labels"
        )


def check_resume(subject: Subject) -> None:
    """Check that a training that is stopped and resumed ends in the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        method = _stop_and_resume(subject, StoredRun(Path(folder)))
    key = first_difference(subject.trained.method, method)
    if key:
        raise subject.defect(
            f"'{key}' differs after stops and restarts: some state is in no parameter and no buffer; "
            f"keep counters and tables as buffers (register_buffer)"
        )


def _stop_and_resume(subject: Subject, folder: StoredRun) -> Method:
    """Train with several stops, each time resuming from the file with fresh objects."""
    calls = 0

    def stop() -> bool:
        nonlocal calls
        calls += 1
        return calls in STOPS

    while True:
        trainer = subject.trainer(hooks=Hooks(stop, checkpoint_seconds=math.inf))
        _check_saved_state(subject, trainer, folder)
        try:
            trainer.run(folder, "contract")
            return trainer.method
        except Interrupted:
            continue


def _check_saved_state(subject: Subject, trainer: Trainer, folder: StoredRun) -> None:
    """Raise where the trainer would set the saved state aside and begin anew."""
    advice = "keep tensors and plain values only"
    try:
        state = checkpoint.read(folder.path / checkpoint.CURRENT, "contract")
        advice = "buffers must keep their first shape"
        trainer.check_state(state, folder.epochs())
    except FileNotFoundError:
        return
    except checkpoint.DamagedCheckpoint as error:
        raise subject.defect(f"its saved state cannot be read by a fresh method: {error}; {advice}") from None


def first_difference(one: Method, other: Method) -> str | None:
    """Return the first entry of the state dicts that is not equal bit for bit."""
    if weights_digest(one) == weights_digest(other):
        return None
    ours, theirs = one.state_dict(), other.state_dict()
    for key in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(key), theirs.get(key)
        if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)):
            return key
    return "a sign or a NaN"


def check_learning(subject: Subject) -> None:
    """Check that it learns an easy task: well above chance in thirty steps, or else in 120."""
    accuracy = subject.trained.accuracy
    if accuracy < REQUIRED_ACCURACY:
        accuracy = subject.train(epochs=20, eval_every=20).accuracy
    if accuracy < REQUIRED_ACCURACY:
        raise subject.defect(
            f"{accuracy:.0f} % of the test images are right after 120 steps on an easy task, where chance is "
            f"{100 / CLASSES:.0f} %; does the loss fall, and does predict use the network that is trained?",
            "training_step",
        )


def check_mixed_precision(subject: Subject) -> None:
    """Check that it trains in mixed precision (bfloat16)."""
    subject.train(amp="bfloat16", epochs=3, batch=ROWS // 2)


Check = Callable[[Subject], str | None]
# In this order, each with the checks that it requires; independent defects are reported in one run.
CHECKS: dict[Check, tuple[Check, ...]] = {
    check_interface: (),
    check_source: (),
    check_construction: (check_interface, check_source),
    check_loss: (check_construction,),
    check_predict: (check_loss,),
    check_diagnostics: (check_loss,),
    check_batches: (check_loss,),
    check_extreme_logits: (check_loss,),
    check_predict_by_image: (check_predict,),
    check_no_side_effects: (check_predict, check_diagnostics),
    check_device: (check_predict, check_diagnostics),
    check_training: (check_predict, check_diagnostics),
    check_global_settings: (check_training,),
    check_inputs: (check_training,),
    check_determinism: (check_training,),
    check_no_true_labels: (check_determinism,),
    check_resume: (check_determinism,),
    check_learning: (check_training,),
    check_mixed_precision: (check_training,),
}


def title(check: Check) -> str:
    """Return the name of a check as the command prints it."""
    return check.__name__.removeprefix("check_").replace("_", " ")


def sentence(check: Check) -> str:
    """Return what a check checks, from its docstring."""
    return (check.__doc__ or "").removeprefix("Check that ").removesuffix(".")
