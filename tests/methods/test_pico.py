"""PiCO beyond its golden numbers: the queue, edge cases, precision, resume."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from methods.base import Clock
from methods.blocks import ema_update, ring_write, unit
from methods.pico import PiCO, supervised_contrastive_loss, updated_prototypes
from tests.support.tiny import (
    TinyOptimiser,
    assert_finite,
    tiny_batch,
    tiny_task,
    train,
)

CONFIG = PiCO.Config(queue_size=16, embed_dim=4, warmup=0.25, gamma=0.9, key_momentum=0.9)
WARM, LATER = Clock(0, 0, 4, 5), Clock(2, 10, 4, 5)


@pytest.mark.parametrize("sizes", [(3, 5, 2, 7, 1), (16, 4), (5, 40, 3), (17,)])
def test_the_queue_holds_the_newest_keys_whatever_the_batch_sizes(sizes: tuple[int, ...]) -> None:
    size = 16
    queue, labels, pointer = torch.zeros(size, 1), torch.full((size,), -1), torch.tensor(0)
    expected, written = [-1] * size, 0
    for count in sizes:
        fresh = torch.arange(written, written + count)
        ring_write(pointer, (queue, fresh[:, None].float()), (labels, fresh))
        for value in fresh.tolist():
            expected[value % size] = value
        written += count
    assert labels.tolist() == expected
    assert queue.flatten()[labels >= 0].tolist() == [float(v) for v in expected if v >= 0]
    assert pointer.item() == written % size


def test_training_with_odd_batches_wraps_the_queue() -> None:
    task = tiny_task()
    torch.manual_seed(0)
    method = PiCO(CONFIG, task)
    optimiser = TinyOptimiser(method)
    steps = [train(method, task, optimiser, range(k, k + 1), size)[0] for k, size in enumerate((7, 5, 3, 7, 20, 2))]
    keys, labels = (torch.cat([step.carry[part] for step in steps])[-16:] for part in (0, 1))
    at = torch.arange(44 - 16, 44) % 16
    assert torch.equal(method.queue[at], keys) and torch.equal(method.queue_labels[at], labels)
    assert method.queue_pointer.item() == 44 % 16


def test_the_loss_sees_the_queue_before_its_own_batch_enters() -> None:
    task = tiny_task()
    method = PiCO(CONFIG, task)
    before = method.queue.clone()
    step = method.training_step(tiny_batch(task, range(5)), LATER)
    assert torch.equal(method.queue, before) and (method.queue_labels == -1).all()
    method.after_step(tiny_batch(task, range(5)), step, LATER)
    assert torch.equal(method.queue[5:], before[5:]) and (method.queue_labels[:5] >= 0).all()


def test_a_data_set_smaller_than_the_queue_trains() -> None:
    task = tiny_task(samples=6)
    method = PiCO(replace(CONFIG, queue_size=64), task)
    steps = train(method, task, TinyOptimiser(method), range(20), size=4)
    assert_finite(method, steps[-1].loss)
    assert (method.queue_labels >= 0).all() and method.queue_pointer.item() == 80 % 64


@pytest.mark.parametrize("clock", [WARM, LATER], ids=["warm", "later"])
@pytest.mark.parametrize("row", [0, 1], ids=["singleton", "full"])
def test_a_batch_of_one_with_three_classes(clock: Clock, row: int) -> None:
    task = tiny_task()
    method = PiCO(CONFIG, task).train()
    step = method.update(tiny_batch(task, [row]), TinyOptimiser(method), clock)
    assert_finite(method, step.loss)
    if row == 0:
        assert method.targets[0].tolist() == [0.0, 0.0, 1.0]
        assert method.queue_labels[0].item() == 2


def test_soft_targets_stay_distributions_on_the_candidates() -> None:
    task = tiny_task(classes=4)
    method = PiCO(CONFIG, task)
    train(method, task, TinyOptimiser(method), range(20))
    assert (method.targets[~task.candidates] == 0).all()
    assert torch.allclose(method.targets.sum(1), torch.ones(20), atol=1e-6)
    assert not torch.equal(method.targets, PiCO(CONFIG, task).targets)


def test_soft_targets_rest_during_the_warm_up_while_prototypes_move() -> None:
    task = tiny_task()
    method = PiCO(CONFIG, task)
    start = method.targets.clone()
    train(method, task, TinyOptimiser(method), range(5))
    assert torch.equal(method.targets, start) and method.prototypes.abs().sum() > 0


def test_a_warm_up_lasts_at_least_an_epoch_unless_it_is_switched_off() -> None:
    task, first, second = tiny_task(), Clock(0, 0, 3, 5), Clock(1, 5, 3, 5)
    for warmup, clock, rests in ((0.01, first, True), (0.01, second, False), (0.0, first, False)):
        method = PiCO(replace(CONFIG, warmup=warmup), task)
        start = method.targets.clone()
        method.update(tiny_batch(task, range(6)), TinyOptimiser(method), clock)
        assert torch.equal(method.targets, start) == rests


@pytest.mark.parametrize("clock", [WARM, LATER], ids=["warm", "later"])
@pytest.mark.parametrize("eps", [0.0, 1e-12])
def test_extreme_logits_and_empty_projections_stay_finite(clock: Clock, eps: float) -> None:
    task = tiny_task()
    method = PiCO(replace(CONFIG, denominator_eps=eps), task)
    batch = tiny_batch(task, range(4))
    logits = torch.tensor(
        [[1e4, -1e4, -1e4], [-1e4, -1e4, -1e4], [0.0, 1e4, 1e4], [-1e4, 1e4, 0.0]], requires_grad=True
    )
    features = torch.zeros(4, 4)
    features[1:] = 1e4 * torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    features.requires_grad_()
    step = method.losses(logits, unit(features), unit(features.detach()), batch, clock)
    gradients = torch.autograd.grad(step.loss, (logits, features))
    with torch.no_grad():
        method.after_step(batch, step, clock)
    assert_finite(method, step.loss)
    assert all(torch.isfinite(g).all() for g in gradients)
    assert batch.candidates.gather(1, method.queue_labels[:4, None]).all(), "a pseudo-label left its candidate set"


def test_autocast_does_not_lower_the_precision_of_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task()
    method = PiCO(CONFIG, task).train()
    logits, queries, keys = (torch.randn(6, width, generator=torch.Generator().manual_seed(2)) for width in (3, 4, 4))
    monkeypatch.setattr(method.query, "both", lambda images: (logits, queries))
    monkeypatch.setattr(method.key, "embed", lambda images: keys)
    batch = tiny_batch(task, range(6))
    plain = method.training_step(batch, LATER).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = method.training_step(batch, LATER).loss
    assert torch.equal(plain, mixed)


def test_the_closed_form_of_the_prototypes_equals_the_loop_over_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    prototypes = unit(torch.randn(5, 4, generator=generator, dtype=torch.float64))
    queries = unit(torch.randn(30, 4, generator=generator, dtype=torch.float64))
    labels = torch.randint(4, (30,), generator=generator)  # class 4 gets no sample
    expected = prototypes.clone()
    for query, label in zip(queries, labels.tolist(), strict=True):
        expected[label] = 0.8 * expected[label] + 0.2 * query
    assert torch.allclose(updated_prototypes(prototypes, queries, labels, 0.8, "batch"), unit(expected), atol=1e-14)


def test_both_normalisations_agree_when_no_class_occurs_twice() -> None:
    generator = torch.Generator().manual_seed(0)
    prototypes, queries = unit(torch.randn(5, 4, generator=generator)), unit(torch.randn(3, 4, generator=generator))
    labels = torch.tensor([4, 0, 2])
    by_batch, by_sample = (updated_prototypes(prototypes, queries, labels, 0.9, n) for n in ("batch", "sample"))
    assert torch.allclose(by_batch, by_sample, atol=1e-6)


def test_a_lone_positive_gives_the_cross_entropy_of_the_own_key() -> None:
    generator = torch.Generator().manual_seed(0)
    queries, keys, queue = (unit(torch.randn(n, 4, generator=generator)) for n in (1, 1, 6))
    positives = torch.zeros(1, 8, dtype=torch.bool)
    positives[0, 1] = True
    logits = queries @ torch.cat((keys, queue)).T / 0.1
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor([0]))
    assert torch.allclose(supervised_contrastive_loss(queries, keys, queue, positives, 0.1), expected)


def test_an_averaged_network_follows_after_both_have_moved_or_been_loaded() -> None:
    target, source = nn.Linear(3, 2), nn.Linear(3, 2)
    ema_update(target, source, 0.5)
    for network in (target, source):
        network.double()
        network.load_state_dict({name: value + 1 for name, value in network.state_dict().items()})
    expected = [0.9 * t + 0.1 * s for t, s in zip(target.parameters(), source.parameters(), strict=True)]
    ema_update(target, source, 0.9)
    for parameter, value in zip(target.parameters(), expected, strict=True):
        assert parameter.dtype == torch.float64 and torch.allclose(parameter, value)


def test_the_key_network_starts_as_a_copy_follows_slowly_and_is_not_trained() -> None:
    torch.manual_seed(0)  # a unit that starts dead would leave its bias where it is
    task = tiny_task()
    method = PiCO(CONFIG, task)
    pairs = list(zip(method.key.parameters(), method.query.parameters(), strict=True))
    assert all(torch.equal(k, q) and not k.requires_grad for k, q in pairs)
    trained = {id(p) for group in method.param_groups() for p in group["params"]}
    assert not any(id(k) in trained for k, _ in pairs)
    train(method, task, TinyOptimiser(method), range(2))
    assert not any(torch.equal(k, q) for k, q in pairs) and all(k.grad is None for k, _ in pairs)


def test_without_a_projection_the_features_are_the_embedding() -> None:
    task = tiny_task()
    method = PiCO(replace(CONFIG, projection=False), task)
    assert {name.split(".")[0] for name, _ in method.query.named_parameters()} == {"backbone", "head"}
    assert method.queue.shape[1] == method.prototypes.shape[1] == method.query.backbone.feature_dim
    batch = tiny_batch(task, range(6))
    keys = method.training_step(batch, LATER).carry[0]
    assert torch.allclose(keys, unit(method.key.features(batch.views[1])))


def test_the_released_queue_start_is_scaled_along_columns() -> None:
    task = tiny_task()
    ours, released = PiCO(CONFIG, task), PiCO(replace(CONFIG, queue_init="columns"), task)
    assert torch.allclose(ours.queue.norm(dim=1), torch.ones(16))
    assert torch.allclose(released.queue.norm(dim=0), torch.ones(4))
