"""Golden ops of DIRK, all from the released code, which fills the queue at weight 0 too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from methods import blocks, dirk
from methods.base import Batch, Clock
from methods.blocks import ring_write, soft_cross_entropy, unit
from methods.dirk import DIRK, positive_pairs
from tests.conformance import shared
from tests.conformance.shared import Inputs, Params

TEMPERATURES = ("feat_temp", "dist_temp", "base_temp")
RELEASED_EPS = 1e-12
QUEUE = ("queue_features", "queue_confidence", "queue_candidates")


def rectify(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return {"confidence": dirk.rectify(x["logits"], x["candidates"])}


def distill_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    return shared.with_gradient(lambda z: soft_cross_entropy(z, x["targets"]), x)


def contrastive_mask(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    everyone = [torch.cat((x[k], x[k], x[f"queue_{k}"])) for k in ("confidence", "candidates")]
    return {"mask": positive_pairs(x["confidence"], x["candidates"], *everyone).double()}


def weighted_contrastive_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    queue = (x["queue_features"], x["queue_confidence"], x["queue_candidates"])
    given = (x["keys"], x["confidence"], x["candidates"], queue, *(params[name] for name in TEMPERATURES), RELEASED_EPS)
    return shared.with_gradient(lambda z: dirk.weighted_contrastive_loss(unit(z), *given), x, "z_student")


def moco_loss(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    rest = (x["keys"], x["queue_features"], params["feat_temp"])
    return shared.with_gradient(lambda z: blocks.moco_loss(unit(z), *rest), x, "z_student")


def queue_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    queue = {name: x[name].clone() for name in QUEUE}
    position = x["queue_ptr"].clone()
    ring_write(position, *((queue[name], x[k]) for name, k in zip(QUEUE, ("keys", "confidence", "candidates"))))
    return queue | {"queue_ptr": position}


def ema_update(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    teacher, student = nn.ParameterList([x["teacher"].clone()]), nn.ParameterList([x["student"]])
    blocks.ema_update(teacher, student, params["momentum"])
    return {"teacher": teacher[0]}


class Recorded(nn.Module):
    """Stands for student or teacher: hands back recorded logits and projections."""

    def __init__(self, logits: Tensor, projections: Tensor) -> None:
        super().__init__()
        self.logits, self.projections = logits, projections
        self.unused = nn.Parameter(torch.zeros(1))  # the moving average needs something to average

    def forward(self, images: Tensor) -> Tensor:
        return self.logits

    def embed(self, images: Tensor) -> Tensor:
        return self.projections


def train_step(params: Params, x: Inputs, variant: str) -> dict[str, Any]:
    z = shared.leaves(x, "student_logits", "z_student")
    candidates, epoch = x["candidates"].bool(), params["epoch"]
    rows, dim = x["queue_features"].shape
    config = DIRK.Config(
        weight=params["weight"],
        contrastive_start=params["contrastive_start_epoch"],
        queue_length=rows,
        projection_length=dim,
        always_three_views=True,
        log_eps=RELEASED_EPS,
        **{name: params[name] for name in TEMPERATURES},
    )
    method = shared.build(DIRK, config, candidates, 2, epoch + 1)
    method.student = Recorded(z["student_logits"], z["z_student"])
    method.teacher = Recorded(x["teacher_logits"], x["z_teacher"])
    for name in QUEUE:
        getattr(method, name).copy_(x[name])
    method.queue_position.copy_(x["queue_ptr"])
    image = torch.zeros(len(candidates), 1)
    batch = Batch((image, image, image), candidates, torch.arange(len(candidates)))
    clock = Clock(epoch, epoch, epoch + 1, 1)
    step = method.training_step(batch, clock)
    out = shared.finish(method, step, z, batch, clock)
    out |= {"loss_teach": step.logs["teach"], "loss_cont": step.logs.get("contrast", 0.0)}
    out |= {"confidence": step.carry[1], "queue_ptr": method.queue_position}
    return out | {name: getattr(method, name).double() for name in QUEUE}


lr_schedule = shared.lr_schedule
