"""Plug-ins that each break the contract in one way. `HERE` marks the line that `check` must name, else the class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HEAD = """import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from methods.base import About, Method, Step
from methods.blocks import Classifier, soft_cross_entropy, uniform_confidence
from methods.registry import register


"""

PARTS = {
    "decorator": "@register",
    "class": "class Mine(Method):",
    "about": '    about = About("Mine", "PLL")',
    "config": "",
    "init": """    def __init__(self, config, task):
        super().__init__(config, task)
        self.network = Classifier(task)
        self.register_buffer("seen", torch.zeros(()))""",
    "step": """    def training_step(self, batch, clock):
        logits = self.network(batch.views[0])
        return Step(soft_cross_entropy(logits, uniform_confidence(batch.candidates)))""",
    "predict": """    def predict(self, images):
        return self.network(images)""",
    "more": "",
}


def plugin(name: str, **changes: str) -> str:
    """The source of a sound method with some of its parts replaced."""
    parts = PARTS | changes
    named = parts["class"] + f'\n    name = "{name}"'
    order = ("about", "config", "init", "step", "predict", "more")
    return (
        HEAD + parts["decorator"] + "\n" + named + "\n" + "\n\n".join(parts[key] for key in order if parts[key]) + "\n"
    )


def step(*lines: str, loss: str = "soft_cross_entropy(logits, uniform_confidence(batch.candidates))") -> str:
    """A training step with lines before the loss."""
    body = ["    def training_step(self, batch, clock):", *(f"        {line}" for line in lines)]
    if not any(line.startswith("logits") for line in lines):
        body.append("        logits = self.network(batch.views[0])")
    mark = "" if "HERE" in "".join(lines) else "  # HERE"
    return "\n".join([*body, f"        return Step({loss}){mark}"])


def init(*lines: str) -> str:
    return PARTS["init"] + "".join(f"\n        {line}" for line in lines)


def predict(*lines: str) -> str:
    return "\n".join(["    def predict(self, images):  # HERE", *(f"        {line}" for line in lines)])


@dataclass(frozen=True)
class Broken:
    """One defect: the source, the check that fails, and words of the sentence."""

    name: str
    source: str
    check: str
    words: str

    @property
    def line(self) -> int:
        """1-based line marked HERE, or without a mark that of the class."""
        lines = self.source.splitlines()
        return 1 + next(k for mark in ("HERE", "class Mine") for k, text in enumerate(lines) if mark in text)

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name.replace('-', '_')}.py"
        path.write_text(self.source, encoding="utf-8")
        return path


def broken(name: str, check: str, words: str, **changes: str) -> Broken:
    return Broken(name, plugin(name, **changes), check, words)


DEF_STEP = "    def training_step(self, batch, clock):  # HERE\n        logits = self.network(batch.views[0])\n"
UNIFORM = "soft_cross_entropy(logits, uniform_confidence(batch.candidates))"
THAWED = "    @dataclass  # HERE\n    class Config:\n        alpha: float = 1.0"
NO_CONFIG = "    @dataclass(frozen=True)\n    class Config:\n        alpha: float  # HERE"

# Found by reading the file: one sentence, nothing is run.
UNREADABLE = (
    Broken("syntax-error", plugin("syntax-error", more="    def broken(self:  # HERE"), "", "syntax error"),
    broken("not-registered", "", "@register", decorator="# HERE"),
    Broken("taken-name", plugin("proden"), "", "is taken"),
    broken("no-default", "", "needs a default", config=NO_CONFIG),
    Broken("no-name", plugin("x").replace('    name = "x"\n', ""), "", "`name`"),
)

# Found by the checks.
DEFECTS = (
    broken("thawed-config", "interface", "frozen dataclass", config=THAWED),
    broken("import-error", "interface", "no_such_module", decorator="import no_such_module  # HERE\n\n@register"),
    broken("no-method", "interface", "subclass", **{"class": "class Mine(nn.Module):"}),
    broken("no-about", "interface", "about", about=""),
    broken("odd-view", "interface", "views", about=PARTS["about"] + '\n    views = ("sideways",)'),
    broken("no-predict", "interface", "no `predict`", predict=""),
    broken("no-step", "interface", "no `training_step`", step=""),
    broken("no-super", "construction", "__init__",
           init="    def __init__(self, config, task):\n        self.network = Classifier(task)  # HERE"),
    broken("nothing-to-train", "construction", "no parameter to train",
           init="    def __init__(self, config, task):  # HERE\n        super().__init__(config, task)"),
    broken("plain-tensor", "construction", "'memory' holds a tensor",
           init=init("self.memory = torch.zeros(task.num_samples)  # HERE")),
    broken("hidden-tensor", "construction", "'_memory' holds a tensor", init=init("self._memory = torch.zeros(3)  # HERE")),
    broken("tensor-in-list", "construction", "'queue' holds a tensor", init=init("self.queue = [torch.zeros(3)]  # HERE")),
    broken("lost-buffer", "construction", "not persistent",
           init=init('self.register_buffer("table", torch.zeros(3), persistent=False)  # HERE')),
    broken("late-tensor", "training", "'last' holds a tensor",
           step=step("logits = self.network(batch.views[0])", "self.last = logits.detach()  # HERE")),
    broken("device-literal", "source", "names a device",
           step=step("noise = torch.zeros(3, device='cuda')  # HERE")),
    broken("cuda-call", "source", "names a device", step=step("batch.views[0].cuda()  # HERE")),
    broken("reads-the-data", "source", "must not import",
           step=step("from datasets import digits  # HERE")),
    broken("mixed-devices", "device", "device",
           step=step("logits = self.network(batch.views[0])", "logits = logits + torch.ones(5)  # HERE")),
    broken("asks-for-labels", "loss", "never handed", step=step("labels = batch.labels  # HERE")),
    broken("task-labels", "construction", "never handed", init=init("self.labels = task.labels  # HERE")),
    broken("no-step-object", "loss", "return Step", step=DEF_STEP + f"        return {UNIFORM}"),
    broken("loss-per-sample", "loss", "scalar",
           step=DEF_STEP + "        return Step(logits.logsumexp(1) - logits[:, 0])"),
    broken("no-gradient", "loss", "no gradient", step=DEF_STEP + f"        return Step({UNIFORM}.detach())"),
    broken("nan-loss", "loss", "nan", step=DEF_STEP + "        return Step((logits - logits).sqrt().sum() / 0 * 0)"),
    broken("late-nan", "training", "step 8",
           step=DEF_STEP + f"        return Step({UNIFORM} / (0.0 if clock.step == 8 else 1.0))"),
    broken("overflows", "extreme_logits", "±10,000",
           step=DEF_STEP + "        return Step(-torch.log(torch.softmax(logits, 1) * 1.0).mean())"),
    broken("wrong-shape", "predict", "(B, C)", predict=predict("return self.network(images)[:, :2]")),
    broken("needs-two", "predict", "Expected more than 1",
           predict="    def predict(self, images):\n        self.train()\n        x = self.network(images)\n"
           "        return torch.nn.functional.batch_norm(x, None, None, training=True)  # HERE"),
    broken("order-matters", "predict_by_image", "place in the batch",
           predict=predict("return self.network(images) + torch.arange(len(images))[:, None]")),
    broken("neighbours-matter", "predict_by_image", "neighbours",
           predict=predict("x = self.network(images)", "return x - x.mean(0)")),
    broken("random-prediction", "predict_by_image", "random",
           predict=predict("x = self.network(images)", "return x + torch.randn_like(x)")),
    broken("predict-writes", "no_side_effects", "changes parameters or buffers",
           predict=predict("self.seen += 1", "return self.network(images)")),
    broken("predict-counts", "no_side_effects", "'calls'",
           init=init("self.calls = 0"), predict=predict("self.calls += 1", "return self.network(images)")),
    broken("writes-view", "inputs", "batch.views[0]", step=step("batch.views[0].mul_(0.5)  # HERE")),
    broken("writes-late", "inputs", "batch.views[0]",
           step=step("if clock.step == 17: batch.views[0].mul_(0.5)  # HERE")),
    broken("writes-candidates", "inputs", "batch.candidates",
           step=step("batch.candidates[:, 0] = True  # HERE")),
    broken("writes-task", "inputs", "task.candidates",
           init=init("self.task = task"), step=step("self.task.candidates[:, 0] = True  # HERE")),
    broken("writes-data", "inputs", "content of batch.views[0]",
           step=DEF_STEP + f"        batch.views[0].data.mul_(0.5)\n        return Step({UNIFORM})"),
    broken("talks", "training", "characters",
           step=step("print('x' * 100_000)").replace("  # HERE", "")),
    broken("python-random", "determinism", "random.random", step=step("scale = random.random()  # HERE",
           loss="scale * " + UNIFORM)),
    broken("numpy-random", "determinism", "np.random", step=step("scale = float(np.random.rand())  # HERE",
           loss="scale * " + UNIFORM)),
    broken("clock-time", "determinism", "time.time", step=step("scale = time.time() % 1  # HERE",
           loss="scale * " + UNIFORM)),
    broken("peeks", "no_true_labels", "seen the labels",
           more="    def on_epoch_start(self, clock, data):\n"
           "        self.seen.copy_(data._trainer.evaluator.train_labels[0])"),
    broken("counts-in-python", "resume", "stops and restarts",
           init=init("self.count = 0"),
           step=step("self.count += 1", loss=f"{UNIFORM} / self.count").replace("  # HERE", "")),
    broken("grows", "resume", "first shape",
           more="    def after_step(self, batch, step, clock):\n        self.seen = torch.zeros(clock.step + 1)"),
    broken("pickles", "resume", "cannot be read",
           more="    def get_extra_state(self):\n        return {'r': random.Random(0)}\n\n"
           "    def set_extra_state(self, state):\n        pass"),
    broken("wrong-confidence", "diagnostics", "(N, C)",
           more="    def confidence(self):  # HERE\n        return torch.zeros(3, 5)"),
    broken("learns-nothing", "learning", "does the loss fall",
           step=DEF_STEP + "        return Step(1e-6 * logits.mean())"),
    broken("half-into-full", "mixed_precision", "dtypes match",
           init=init('self.register_buffer("table", torch.zeros(task.num_samples, task.num_classes))'),
           step=step("logits = self.network(batch.views[0])", "self.table[batch.index] = logits.detach()  # HERE")),
    broken("quits", "loss", "SystemExit", step=step("raise SystemExit(0)  # HERE")),
)  # fmt: skip

ENDLESS = (
    broken("endless", "loss", "did not end", step=step("while True: pass  # HERE")),
    broken("sleeps", "loss", "did not end", step=step("time.sleep(1e6)  # HERE")),
)
