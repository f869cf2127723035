"""Optimisers and schedules: every entry steps, resumes exactly, and is what torch or a paper calls by that name."""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmark.config.optimisation import OPTIMIZERS, SCHEDULES
from benchmark.config.sections import Train, to_json
from benchmark.trainer.checkpoint import DamagedCheckpoint
from benchmark.trainer.optimizers import Optimizer
from tests.conftest import TinyBenchmark
from tests.support.killing import documents, finish, wait_until

CPU = torch.device("cpu")


class Weights(nn.Module):
    """Four parameters in two groups, as `Method.param_groups` gives them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        shapes = [(4, 3), (3,), (2, 2, 2), (1,)]
        self.weights = nn.ParameterList([torch.randn(shape, generator=generator) for shape in shapes])

    def param_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.weights)[:2], "lr_scale": 0.1}, {"params": list(self.weights)[2:]}]


def stepped(module: Weights, optimizer: Optimizer, first: int, last: int) -> list[Tensor]:
    """Steps of which the last parameter gets no gradient in the first three, the second none in the fifth."""
    generator = torch.Generator().manual_seed(1)
    for k in range(last):
        slopes = [torch.randn(weight.shape, generator=generator) for weight in module.weights]
        if k < first:
            continue
        optimizer.schedule_to(k, 2)
        used = [j for j in range(4) if not ((j == 3 and k < 3) or (j == 1 and k == 4))]
        optimizer.minimise(torch.stack([(module.weights[j] * slopes[j]).sum() for j in used]).sum())
    return [weight.detach().clone() for weight in module.weights]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_and_schedule_goes_on_from_a_saved_state_as_if_nothing_had_happened(
    name: str, schedule: str
) -> None:
    train = Train(epochs=4, optimizer=name, schedule=schedule, lr=0.1, decay_every=1.0)
    whole = Weights()
    expected = stepped(whole, Optimizer(whole, train, CPU), 0, 8)  # type: ignore[arg-type]
    cut = Weights()
    first = Optimizer(cut, train, CPU)  # type: ignore[arg-type]
    stepped(cut, first, 0, 5)
    second = Optimizer(cut, train, CPU)  # type: ignore[arg-type]
    saved = copy.deepcopy(first.state_dict())
    second.check_state(saved)
    second.load_state_dict(saved)
    assert all(torch.equal(a, b) for a, b in zip(expected, stepped(cut, second, 5, 8), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_state_of_other_shapes_is_refused(name: str) -> None:
    module = Weights()
    optimizer = Optimizer(module, Train(epochs=4, optimizer=name), CPU)  # type: ignore[arg-type]
    stepped(module, optimizer, 0, 4)
    state = copy.deepcopy(optimizer.state_dict())
    slot = state["torch"]["state"][0]
    key = next(k for k, value in slot.items() if isinstance(value, Tensor) and value.dim())
    slot[key] = torch.zeros(7)
    with pytest.raises(DamagedCheckpoint, match=f"its {key} does not fit"):
        optimizer.check_state(state)


def lrs(scheduler: Callable[[torch.optim.Optimizer], Any], per_step: bool) -> list[tuple[float, float]]:
    """Learning rate and first beta of torch's own scheduler over 10 epochs of 7 steps."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=0.01)
    own, found = scheduler(optimizer), []
    for step in range(70):
        found.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]))
        optimizer.step()
        if step < 69 and (per_step or step % 7 == 6):
            own.step()
    return found


def test_one_cycle_is_torchs_with_its_momentum() -> None:
    train = Train(epochs=10, lr=0.01, schedule="one-cycle")
    known = lrs(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.01, total_steps=70), per_step=True)
    for step, (lr, beta) in enumerate(known):
        rates = SCHEDULES["one-cycle"](train, step, 7)
        assert rates.lr == pytest.approx(lr, rel=1e-12) and rates.momentum == pytest.approx(beta, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "scheduler"),
    [
        ("step", lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=3, gamma=0.4)),
        ("exponential", lambda o: torch.optim.lr_scheduler.ExponentialLR(o, gamma=0.4 ** (1 / 3))),
        ("cosine", lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10, eta_min=0.01 / 1000)),
    ],
)
def test_schedules_per_epoch_are_torchs(name: str, scheduler: Callable[[torch.optim.Optimizer], Any]) -> None:
    train = Train(epochs=10, lr=0.01, schedule=name, decay=0.4, decay_every=3.0)
    for step, (lr, _) in enumerate(lrs(scheduler, per_step=False)):
        assert SCHEDULES[name](train, step, 7).lr == pytest.approx(lr, rel=1e-9)


def test_an_overflow_under_gradient_scaling_is_skipped() -> None:
    module = Weights()
    optimizer = Optimizer(module, Train(epochs=4, amp="float16", schedule="constant"), CPU)  # type: ignore[arg-type]
    before = [weight.detach().clone() for weight in module.weights]
    optimizer.minimise(torch.stack([(weight * float("inf")).sum() for weight in module.weights]).sum())
    assert all(torch.equal(a, b) for a, b in zip(before, module.weights, strict=True))
    optimizer.minimise(torch.stack([weight.square().sum() for weight in module.weights]).sum())
    assert not any(torch.equal(a, b) for a, b in zip(before, module.weights, strict=True))


def test_fields_younger_than_stored_runs_are_in_the_identity_only_where_they_differ() -> None:
    assert not {"optimizer", "decay", "decay_every"} & to_json(Train()).keys()
    changed = to_json(dataclasses.replace(Train(), optimizer="adamw"))
    assert changed["optimizer"] == "adamw" and "decay" not in changed and changed["schedule"] == "cosine"


@pytest.mark.parametrize("words", ["adam,one-cycle", "adamw,step", "sgd,one-cycle"])
def test_a_killed_run_with_any_optimiser_ends_in_the_same_weights(
    forked_benchmark: Callable[..., TinyBenchmark], words: str
) -> None:
    optimizer, schedule = words.split(",")
    options = ["--set", f"train.optimizer={optimizer}", "--set", f"train.schedule={schedule}", "--set", "train.lr=0.01"]
    command = ["run", "--methods", "proden", "--datasets", "digits", "--seeds", "0", "--epochs", "20", *options]
    whole, cut = forked_benchmark("whole"), forked_benchmark("cut")
    whole.run(*command, check=True)
    started = cut.start(*command, "--checkpoint-seconds", "0")
    wait_until(lambda: list(cut.results.glob("runs/*/*/*/checkpoint.pt")), 60, "a checkpoint")
    os.killpg(started.pid, signal.SIGKILL)  # workers too: one that lives on for a moment might end its run
    finish(started)
    cut.run(*command, check=True)
    (a,), (b,) = documents(whole).values(), documents(cut).values()
    assert a["weights_sha256"] == b["weights_sha256"] and b["time"]["sittings"] == 2
