"""Variants that the contract, which takes default settings, does not reach: exact resume, finite numbers, refused settings."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from methods.able import ABLE
from methods.abs import AbsGCE, AbsMAE
from methods.alim import ALIM
from methods.base import Clock, Method
from methods.cavl import CAVL
from methods.cel import CEL
from methods.controls.pop_around import CCAndPOP, LWSAndPOP, RCAndPOP
from methods.cr_dpll import CrDpll
from methods.crosel import CroSel
from methods.dirk import DIRK, DIRKPlain
from methods.fredis import FREDIS
from methods.idgp import IDGP
from methods.nepll import NEPLL
from methods.papi import PaPi
from methods.pico import PiCO
from methods.pop import POP
from methods.solar import SoLar
from tests.methods import (
    test_alim,
    test_cel,
    test_crosel,
    test_dirk,
    test_fredis,
    test_idgp,
    test_nepll,
    test_pico,
    test_pop,
    test_solar,
    test_valen,
)
from tests.support.tiny import (
    TinyData,
    TinyOptimiser,
    assert_finite,
    assert_stopping_changes_nothing,
    start,
    tiny_batch,
    tiny_task,
)

SHORT = {"epochs": 4, "steps": 2}
FIVE = {"epochs": 5, "steps": 2}
LONG = {"classes": 5, "epochs": 6, "steps": 2}  # enough for rounds that change candidate sets
FAMILIES: list[tuple[type[Method], Any, dict[str, int], list[dict[str, Any]]]] = [
    (ABLE, ABLE.Config(embed_dim=4), SHORT, [{"confidence_lookup": "sample"}, {"confidence_lookup": "batch_position"}]),
    (ALIM, test_alim.CONFIG, SHORT, [{}, {"normalise": "scale"}, {"noise_rate": 1.0, "cap": False}]),
    (CAVL, CAVL.Config(), SHORT, [{}]),
    (CEL, test_cel.CONFIG, SHORT, [{}, {"prototype_mode": "sequential", "selection": "global"}]),
    (CEL, test_cel.RELEASED, SHORT, [{}]),
    (CrDpll, CrDpll.Config(), SHORT, [{"target_order": "stored"}, {"target_order": "online"}]),
    (CroSel, test_crosel.CONFIG, FIVE, [{}, {"warmup": 0.0, "mixup": False, "threshold": 2.0, "sharpen": "power"}]),
    (DIRK, test_dirk.CONFIG, SHORT, [{}, {"teacher_init": "independent", "log_eps": 1e-12, "contrastive_start": 0}]),
    (DIRKPlain, DIRKPlain.Config(), SHORT, [{}]),
    (FREDIS, test_fredis.EAGER, LONG, [{}, {"eligible": "all", "T": 3.0}]),
    (IDGP, test_idgp.NEUTRAL, SHORT, [{}, {"joint_warmup": False}]),
    (IDGP, test_idgp.DERIVED, SHORT, [{}]),
    (IDGP, IDGP.Config(), SHORT, [{"normalise_weights": True}]),
    (NEPLL, test_nepll.CONFIG, FIVE, [{}, {"eta": 1.0}, {"warmup": 0, "expand": 0}]),
    (NEPLL, test_nepll.READINGS, FIVE, [{}]),
    (PaPi, PaPi.Config(embed_dim=4, rampup=0.25), SHORT, [{}]),
    (PiCO, test_pico.CONFIG, SHORT, [{}, {"projection": False}]),
    (POP, test_pop.EAGER, LONG, [{}]),
    (POP, test_pop.MARGIN, LONG, [{}]),
    (RCAndPOP, RCAndPOP.Config(**test_pop.ROUNDS), LONG, [{}]),
    (CCAndPOP, CCAndPOP.Config(**test_pop.ROUNDS), LONG, [{}]),
    (LWSAndPOP, LWSAndPOP.Config(**test_pop.ROUNDS), LONG, [{}]),
    (
        SoLar,
        test_solar.CONFIG,
        SHORT,
        [{}, {"absent_class": "skip"}, {"queue_size": 0}, {"gamma2": 1.0}, {"estimate": 0.5}],
    ),
]
FAMILIES += [(form, config, SHORT, [{}]) for form, config in test_valen.FORMS]
VARIANTS = [
    pytest.param(form, replace(config, **changes), length, id=f"{form.name}-{number}")
    for number, (form, config, length, variants) in enumerate(FAMILIES)
    for changes in variants
]


@pytest.mark.parametrize(("form", "config", "length"), VARIANTS)
def test_a_stop_anywhere_changes_nothing_and_all_numbers_are_finite(
    form: type[Method], config: Any, length: dict[str, int]
) -> None:
    task = tiny_task(**length)
    method = assert_stopping_changes_nothing(form, config, task)
    sets, confidence = method.candidate_sets(), method.confidence()
    assert sets is None or not torch.equal(sets, task.candidates)  # the stops lay around real rounds
    if form is NEPLL:
        torch.testing.assert_close(confidence.sum(1), torch.ones(task.num_samples), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("form", "config", "length"), VARIANTS)
def test_logits_of_ten_thousand_stay_finite(form: type[Method], config: Any, length: dict[str, int]) -> None:
    """One step per epoch; later visits meet saturated state."""
    task = tiny_task(**length)
    method, _ = start(form, config, task)
    with torch.no_grad():
        for name, parameter in method.named_parameters():
            if name.endswith(("head.weight", "group_weight")):
                parameter.normal_(0, 1e4)
            elif name.endswith(("head.bias", "group_bias")):
                parameter.copy_(1e4 * (-1.0) ** torch.arange(task.num_classes))
    batch, data = tiny_batch(task, range(task.num_samples), len(form.views)), TinyData(task)
    for epoch in range(task.epochs):
        clock = Clock(epoch, epoch * task.steps_per_epoch, task.epochs, task.steps_per_epoch)
        method.on_epoch_start(clock, data)
        step = method.training_step(batch, clock)
        method.zero_grad()
        step.loss.backward()
        assert_finite(method, step.loss)
        with torch.no_grad():
            method.after_step(batch, step, clock)
        method.on_epoch_end(clock, data)
    assert_finite(method, step.loss)
    sets = method.candidate_sets()
    assert sets is None or sets.any(1).all()


@pytest.mark.parametrize(
    ("form", "wrong"),
    [
        *((AbsGCE, {"q": q}) for q in (0.0, -0.5, 1.5)),
        (ALIM, {"noise_rate": 1.5}),
        (ALIM, {"prior_fixed": -1.0}),
        *((CroSel, wrong) for wrong in ({"history": 0}, {"sharpen_T": 0.0}, {"mixup_alpha": -1.0})),
        *((FREDIS, wrong) for wrong in ({"dec": 0.0}, {"T": 0.0}, {"times": -1})),
        (IDGP, {"T1": 0}),
        (NEPLL, {"eta": 1.2}),
        (PaPi, {"tau": 0.0}),
        (PaPi, {"mixup_alpha": -1.0}),
        *((POP, wrong) for wrong in ({"inc": 2.0}, {"theta": 1.5}, {"roll_window": 0}, {"e_end": 0.0})),
        (SoLar, {"iterations": 0}),
        (SoLar, {"estimate": 1.0}),
    ],
)
def test_settings_out_of_range_are_refused(form: Any, wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"{form.name}: .*{name}"):
        form.Config(**wrong)


@pytest.mark.parametrize(
    ("form", "config", "passes"),
    [
        (CAVL, CAVL.Config(second_forward_bn="update"), 2),
        (CAVL, CAVL.Config(second_forward_bn="frozen"), 1),
        (CrDpll, CrDpll.Config(), 3),
        (CroSel, test_crosel.CONFIG, 3),
        (PaPi, PaPi.Config(embed_dim=4), 4),
    ],
)
def test_batch_norm_counts_every_forward_pass_of_a_step(form: Any, config: Any, passes: int) -> None:
    task = tiny_task()
    method = form(config, task).train()
    method.update(tiny_batch(task, range(4), len(form.views)), TinyOptimiser(method), Clock(3, 15, 4, 5))
    counts = {int(value) for name, value in method.state_dict().items() if name.endswith("num_batches_tracked")}
    assert counts == {passes}


@pytest.mark.parametrize("form", [AbsMAE, AbsGCE])
def test_bfloat16_does_not_lower_the_precision_of_the_average_losses(form: Any) -> None:
    method = form(form.Config(), tiny_task())
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    candidates = torch.tensor([[True, True, False]]).expand(4, -1)
    plain = method.loss(logits, candidates)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(method.loss(logits, candidates), plain)
        assert method.loss(logits.bfloat16(), candidates).dtype == torch.float32


@pytest.mark.parametrize(
    ("form", "config", "network"), [(ABLE, ABLE.Config(embed_dim=4), "network"), (PiCO, test_pico.CONFIG, "query")]
)
def test_autocast_does_not_lower_the_precision_of_contrastive_losses(form: Any, config: Any, network: str) -> None:
    task = tiny_task()
    method = form(config, task).train()
    views = 2 if form is ABLE else 1  # ABLE passes both through one network, PiCO the second through the key network
    outputs = [torch.randn(6, n, generator=torch.Generator().manual_seed(n)).repeat(views, 1) for n in (3, 4)]
    getattr(method, network).both = lambda images: outputs
    if form is PiCO:
        method.key.embed = lambda images: outputs[1].flip(0)
    step = partial(method.training_step, tiny_batch(task, range(6)), Clock(2, 10, 4, 5))
    plain = step().loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(step().loss, plain)
