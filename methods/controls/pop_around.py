"""POP around other losses — RC, CC and LWS on candidate sets that POP's rounds shrink.

N. Xu, B. Liu, J. Lv, C. Qiao, X. Geng: Progressive Purification for Instance-Dependent Partial Label Learning, ICML
2023, Table 4. No code for it is released: the base method gets the shrunken sets instead of the original ones, and the
evidence of a round is the softmax over them, taken after every step, as in `pop.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from methods.base import About, Batch, Clock, Step
from methods.blocks import candidate_softmax, second_forward
from methods.cc import CC
from methods.lws import LWS
from methods.pop import Purification
from methods.rc import RC
from methods.registry import register

if TYPE_CHECKING:
    from methods.blocks import Classifier


class Around(Purification):
    """Mixin before a method with one view and a `network`: its steps use the purified sets."""

    network: Classifier

    def training_step(self, batch: Batch, clock: Clock) -> Step:
        return super().training_step(self.shrunken(batch), clock)

    def after_step(self, batch: Batch, step: Step, clock: Clock) -> None:
        shrunken_batch = self.shrunken(batch)
        super().after_step(shrunken_batch, step, clock)
        logits = second_forward(self.network, batch.views[0], "frozen")
        batch.store(self.label_weights, candidate_softmax(logits, shrunken_batch.candidates))

    def shrunken(self, batch: Batch) -> Batch:
        return replace(batch, candidates=batch.rows(self.sets))


@register
class RCAndPOP(Around, RC):
    """RC on candidate sets that POP's rounds shrink."""

    name = "rc-pop"
    about = About("RC+POP", "control", forwards="3", state="RC's and POP's")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config(RC.Config, Purification.Config):
        """RC's fields and POP's."""


@register
class CCAndPOP(Around, CC):
    """CC on candidate sets that POP's rounds shrink."""

    name = "cc-pop"
    about = About("CC+POP", "control", forwards="2", state="POP's")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config(CC.Config, Purification.Config):
        """CC's fields and POP's."""


@register
class LWSAndPOP(Around, LWS):
    """LWS on candidate sets that POP's rounds shrink."""

    name = "lws-pop"
    about = About("LWS+POP", "control", forwards="3", state="LWS's and POP's")
    views = ("weak",)

    @dataclass(frozen=True)
    class Config(LWS.Config, Purification.Config):
        """LWS's fields and POP's."""
