"""VALEN beyond its golden numbers: the neighbour search, the transition, extreme inputs, mixed precision, resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from methods import blocks, valen
from methods.base import Clock, Method, Task, ViewName
from methods.controls.valen_paper import ValenPaper, propagate
from methods.networks import knn
from methods.networks.backbones import MLP, Layers
from methods.networks.knn import nearest_neighbours
from methods.valen import Valen, ValenThreeViews
from tests.support import tiny

SMALL = Valen.Config(warmup=0.25, recon_side=4)  # one of four epochs
FORMS: list[tuple[type[Method], Any]] = [
    (Valen, SMALL),
    (Valen, Valen.Config(warmup=0.25, recon_x="features", graph_refresh="epoch", encoder_init="fresh")),
    (Valen, Valen.Config(warmup=0.25, recon_x="none", sample_from="alpha", warmup_loss="min", correct=1.0)),
    (Valen, replace(SMALL, double_softmax=True, weight_x=1.0, encoder_init="fresh")),
    (ValenThreeViews, ValenThreeViews.Config(warmup=0.25, recon_side=4)),
    (ValenPaper, ValenPaper.Config(warmup=0.25, hidden=16, draws=2)),
    (ValenPaper, ValenPaper.Config(warmup=0.25, hidden=16, target="confidence")),
]
SECOND_STAGE = Clock(epoch=1, step=5, epochs=4, steps_per_epoch=5)
every_form = pytest.mark.parametrize(("form", "config"), FORMS)


def brute_force(features: Tensor, k: int) -> Tensor:
    """All pairs, one subtraction each; ties to the lower row."""
    squared = (features.double()[:, None] - features.double()[None]).square().sum(2)
    squared.fill_diagonal_(math.inf)
    return torch.sort(squared, dim=1, stable=True).indices[:, : min(k, len(features) - 1)]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 150), k=st.integers(1, 6), dim=st.integers(1, 5), seed=st.integers(0, 99), copied=st.booleans())
def test_blocked_neighbours_equal_brute_force(n: int, k: int, dim: int, seed: int, copied: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = 100 + torch.randn(n, dim, generator=generator)  # far from the origin, where ‖x‖² + ‖y‖² − 2x·y cancels
    if copied:
        features = features[torch.randint(n, (n,), generator=generator) // 4]
    assert torch.equal(nearest_neighbours(features, k, block_entries=7 * 192), brute_force(features, k))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 1 + knn.SPARE), k=st.integers(1, 12), dim=st.integers(1, 3), seed=st.integers(0, 99))
def test_equally_far_rows_are_taken_in_order(n: int, k: int, dim: int, seed: int) -> None:
    grid = torch.randint(3, (n, dim), generator=torch.Generator().manual_seed(seed)).float()
    assert torch.equal(nearest_neighbours(grid, k), brute_force(grid, k))


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_duplicates_go_to_the_lowest_row_and_never_to_oneself(n: int) -> None:
    found = nearest_neighbours(torch.full((n, 4), 0.3), 3)
    assert torch.equal(found, brute_force(torch.full((n, 4), 0.3), 3))
    assert found.shape == (n, min(3, n - 1))
    assert not (found == torch.arange(n)[:, None]).any()


def test_the_block_size_does_not_change_the_neighbours() -> None:
    features = torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
    whole = nearest_neighbours(features, 3)
    for entries in (1, 320 * 7, 320 * 299):
        assert torch.equal(nearest_neighbours(features, 3, block_entries=entries), whole)


def test_smallest_columns_across_groups() -> None:
    values = torch.randint(0, 30, (20, 4 * knn.GROUP), generator=torch.Generator().manual_seed(0)).float()
    expected = torch.sort(values, dim=1, stable=True).indices[:, :9]
    assert torch.equal(knn.smallest(values, 9), expected)


def test_neighbours_are_exact_under_autocast_and_leave_the_precision_setting_alone() -> None:
    features = 100 + torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            found = nearest_neighbours(features, 3)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert torch.equal(found, brute_force(features, 3))


def test_diverged_features_do_not_crash_the_neighbour_search() -> None:
    found = nearest_neighbours(torch.full((10, 4), math.nan), 3)
    assert found.shape == (10, 3) and found.max() < 10


def test_the_sparse_symmetric_graph_equals_the_dense_one() -> None:
    neighbours = nearest_neighbours(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)), 3)
    dense = knn.batch_adjacency(neighbours, torch.arange(30)) > 0
    dense = (dense | dense.T).double()
    scale = dense.sum(1).rsqrt()
    expected = scale[:, None] * dense * scale
    assert torch.allclose(propagate(torch.eye(30, dtype=torch.float64), neighbours), expected)


def test_a_batch_of_one_has_a_constant_graph_term() -> None:
    sample = torch.tensor([[0.2, 0.5, 0.3]], requires_grad=True)
    adjacency = knn.batch_adjacency(torch.tensor([[1, 2, 3]] * 4), torch.tensor([2]))
    assert adjacency.tolist() == [[0.25]]
    (gradient,) = torch.autograd.grad(valen.graph_error(sample, adjacency), sample)
    assert torch.equal(gradient, torch.zeros(1, 3))


def test_the_graph_of_the_sample_is_computed_in_full_precision_under_autocast() -> None:
    sample = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = valen.similarity(sample)
    assert torch.equal(mixed, valen.similarity(sample))


def test_one_candidate_stays_certain_whatever_is_drawn() -> None:
    one = torch.tensor([[False, True, False]])
    mixed = valen.label_distribution(torch.tensor([[0.999, 1.2e-38, 0.001]]), one.float(), one, correct=0.2)
    assert torch.allclose(mixed, one.float())


@pytest.mark.parametrize("detach", [True, False])
def test_every_term_is_finite_for_extreme_logits(detach: bool) -> None:
    torch.manual_seed(0)
    logits = (1e4 * (2 * torch.randint(0, 2, (8, 5)) - 1.0)).requires_grad_()
    candidates = torch.rand(8, 5) < 0.4
    candidates[:, 0] = True
    law = valen.concentration(logits, candidates, 0.01, detach)
    assert torch.allclose(law.sum(1), torch.full((8,), 1.05))
    sample = torch.distributions.Dirichlet(law).rsample()
    loss = blocks.dirichlet_kl(valen.kl_parameters(logits), 1.0) + valen.min_loss(logits, candidates)
    loss = loss + valen.candidate_error(sample, candidates) + valen.graph_error(sample, torch.eye(8))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert math.isfinite(loss.item()) and torch.isfinite(gradient).all()


def test_pixels_are_pooled_only_where_larger_than_the_target() -> None:
    small, large = torch.randn(2, 3, 32, 32), torch.randn(2, 3, 224, 224)
    assert torch.equal(valen.input_target(small, 3 * 32**2), small.flatten(1))
    expected = large.unflatten(3, (32, 7)).unflatten(2, (32, 7)).mean((3, 5)).flatten(1)
    assert torch.allclose(valen.input_target(large, 3 * 32**2), expected, atol=1e-5)


def test_features_are_decoded_as_they_are() -> None:
    features = torch.randn(2, 20)
    assert torch.equal(valen.input_target(features, 20), features)
    task = replace(tiny.tiny_task(), backbone=lambda: MLP(20, Layers(width=8)))
    decoder = Valen(Valen.Config(), task).decoder
    assert decoder is not None and decoder.size == 20
    assert sum(p.numel() for p in decoder.parameters()) == 20 * (3 + 1) + 20 * (20 + 1)


def test_a_draw_is_that_of_torch_but_for_numbers_whose_squares_underflow() -> None:
    parameters = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).exp().sub(0.2).clamp_min(0.01)
    torch.manual_seed(0)
    known = torch.distributions.Dirichlet(parameters).rsample()
    torch.manual_seed(0)
    ours = blocks.dirichlet_draw(parameters)
    smallest = torch.finfo(torch.float32).tiny ** 0.5
    assert known.min() < smallest <= ours.min()
    assert torch.equal(ours, known.clamp_min(smallest))


# The whole method -----------------------------------------------------------------------------------------------------


class Trainer:
    """The trainer's loop in small: seeds, epoch hooks, momentum; stops and starts at any step."""

    def __init__(self, form: type[Method], config: Any, task: Task, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.task, self.method = task, form(config, task).train()
        self.optimiser, self.resets = tiny.TinyOptimiser(self.method), 0

    def infer(self, fn: Callable[[Tensor], Any], view: ViewName = "plain") -> Any:
        assert not self.method.training, "features have to come from eval mode"
        rows = torch.arange(self.task.num_samples)
        parts = [fn(tiny.tiny_batch(self.task, part.tolist()).views[0]) for part in rows.split(8)]
        return torch.cat([part.detach() for part in parts])

    def reset_momentum(self) -> None:
        self.resets += 1
        self.optimiser = tiny.TinyOptimiser(self.method)

    def run(self, steps: range) -> None:
        for number in steps:
            clock = Clock(number // self.task.steps_per_epoch, number, self.task.epochs, self.task.steps_per_epoch)
            if number % self.task.steps_per_epoch == 0:
                self.method.on_epoch_start(clock, self)
            assert self.method.training
            rows = torch.randperm(self.task.num_samples, generator=torch.Generator().manual_seed(number))[:5]
            batch = tiny.tiny_batch(self.task, rows.tolist(), views=len(self.method.views))
            torch.manual_seed(number)
            step = self.method.update(batch, self.optimiser, clock)
            tiny.assert_finite(self.method, step.loss)


@every_form
@pytest.mark.parametrize("cut", [3, 5, 8, 15])  # in warm-up, right before the transition, after it, between epochs
def test_a_stop_anywhere_changes_nothing(form: type[Method], config: Any, cut: int) -> None:
    task = tiny.tiny_task()
    whole = Trainer(form, config, task)
    whole.run(range(20))

    first = Trainer(form, config, task)
    first.run(range(cut))
    second = Trainer(form, config, task, seed=99)  # another initialisation: whatever is not loaded shows
    second.method.load_state_dict(first.method.state_dict())
    second.optimiser.sgd.load_state_dict(first.optimiser.sgd.state_dict())
    second.run(range(cut, 20))
    for key, value in whole.method.state_dict().items():
        assert torch.equal(second.method.state_dict()[key], value), f"{key} differs after a resume"


def test_warm_up_trains_the_classifier_only_and_the_transition_copies_it() -> None:
    trainer = Trainer(Valen, SMALL, tiny.tiny_task())
    method = trainer.method
    assert isinstance(method, Valen)
    before = {key: value.clone() for key, value in method.encoder.state_dict().items()}
    trainer.run(range(5))
    assert all(torch.equal(value, before[key]) for key, value in method.encoder.state_dict().items())
    assert not torch.equal(method.network.head.weight, before["head.weight"])
    assert trainer.resets == 0

    method.on_epoch_start(SECOND_STAGE, trainer)
    for key, value in method.network.state_dict().items():
        assert torch.equal(method.encoder.state_dict()[key], value), key
    assert torch.equal(method.label_distribution, method.label_confidence)
    method.eval()
    features = trainer.infer(method.network.features)
    method.train()
    assert torch.equal(method.neighbours, brute_force(features, 3))
    assert trainer.resets == 1


def test_a_double_softmax_is_of_the_warm_up_alone() -> None:
    task = tiny.tiny_task()
    batch = tiny.tiny_batch(task, range(6), 1)
    method = Valen(replace(SMALL, double_softmax=True), task)
    probabilities = torch.softmax(method.network(batch.views[0]), dim=1)
    step = method.training_step(batch, Clock(epoch=0, step=0, epochs=4, steps_per_epoch=5))
    assert torch.allclose(step.loss, blocks.soft_cross_entropy(probabilities, batch.rows(method.label_confidence)))
    method.after_step(batch, step, SECOND_STAGE)
    assert torch.allclose(batch.rows(method.label_confidence), blocks.masked_softmax(probabilities, batch.candidates))
    assert torch.allclose(method.training_step(batch, SECOND_STAGE).carry[0], method.network(batch.views[0]))


def test_the_transition_happens_once_even_if_the_hook_is_called_again() -> None:
    trainer = Trainer(Valen, SMALL, tiny.tiny_task())
    trainer.run(range(8))
    kept = {key: value.clone() for key, value in trainer.method.state_dict().items()}
    trainer.method.on_epoch_start(SECOND_STAGE, trainer)
    trainer.method.on_epoch_start(Clock(2, 10, 4, 5), trainer)
    assert trainer.resets == 1
    assert all(torch.equal(value, kept[key]) for key, value in trainer.method.state_dict().items())


@every_form
def test_tables_stay_distributions_on_the_candidates(form: type[Method], config: Any) -> None:
    task = tiny.tiny_task()
    trainer = Trainer(form, config, task)
    shapes = {key: value.shape for key, value in trainer.method.state_dict().items()}
    trainer.run(range(20))
    assert {key: value.shape for key, value in trainer.method.state_dict().items()} == shapes
    confidence = trainer.method.confidence()
    assert confidence is not None and not confidence[~task.candidates].any()
    assert torch.allclose(confidence.sum(1), torch.ones(task.num_samples))
    if isinstance(trainer.method, Valen):
        assert not trainer.method.label_distribution[~task.candidates].any()


def test_the_classifier_and_the_encoder_get_gradients_from_their_own_terms_only() -> None:
    trainer = Trainer(Valen, SMALL, tiny.tiny_task())
    trainer.run(range(8))
    method = trainer.method
    assert isinstance(method, Valen)
    batch = tiny.tiny_batch(trainer.task, range(6))
    u, a = method.network(batch.views[0]), method.encoder(batch.views[0])
    sample = torch.distributions.Dirichlet(method.concentration(a, batch.candidates)).rsample()
    for name, term in method.terms([u], [a], sample, batch).items():
        grad_u, grad_a = torch.autograd.grad(term, (u, a), retain_graph=True, allow_unused=True)
        assert (grad_u is not None) == (name == "classifier"), name
        assert (grad_a is not None) == (name != "classifier"), name


@every_form
@pytest.mark.parametrize("samples", [1, 2, 20])
def test_a_batch_of_one_in_eval_mode_and_fewer_samples_than_neighbours(
    form: type[Method], config: Any, samples: int
) -> None:
    trainer = Trainer(form, config, tiny.tiny_task(samples=samples))
    trainer.method.on_epoch_start(SECOND_STAGE, trainer)
    trainer.method.eval()
    batch = tiny.tiny_batch(trainer.task, [0], views=len(trainer.method.views))
    step = trainer.method.training_step(batch, SECOND_STAGE)
    step.loss.backward()
    with torch.no_grad():
        trainer.method.after_step(batch, step, SECOND_STAGE)
    tiny.assert_finite(trainer.method, step.loss)
