"""VALEN beyond its golden numbers and the contract."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from methods import blocks, valen
from methods.base import Clock, Method
from methods.controls.valen_paper import ValenPaper
from methods.networks import knn
from methods.networks.backbones import MLP, Layers
from methods.networks.knn import nearest_neighbours
from methods.valen import Valen, ValenThreeViews
from tests.support import tiny
from tests.support.tiny import TinyData, start, train

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


def test_the_graph_of_the_sample_is_computed_in_full_precision_under_autocast() -> None:
    sample = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        mixed = valen.similarity(sample)
    assert torch.equal(mixed, valen.similarity(sample))


def test_one_candidate_stays_certain_whatever_is_drawn() -> None:
    one = torch.tensor([[False, True, False]])
    mixed = valen.label_distribution(torch.tensor([[0.999, 1.2e-38, 0.001]]), one.float(), one, correct=0.2)
    assert torch.allclose(mixed, one.float())


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


def test_warm_up_trains_the_classifier_only_and_the_transition_copies_it() -> None:
    task = tiny.tiny_task()
    method, optimiser = start(Valen, SMALL, task)
    before = {key: value.clone() for key, value in method.encoder.state_dict().items()}
    train(method, task, optimiser, range(5))
    assert all(torch.equal(value, before[key]) for key, value in method.encoder.state_dict().items())
    assert not torch.equal(method.network.head.weight, before["head.weight"])
    data = TinyData(task)
    method.on_epoch_start(SECOND_STAGE, data)
    for key, value in method.network.state_dict().items():
        assert torch.equal(method.encoder.state_dict()[key], value), key
    assert torch.equal(method.label_distribution, method.label_confidence)
    method.eval()
    assert torch.equal(method.neighbours, brute_force(data.infer(method.network.features), 3))
    assert data.resets == 1


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
    task = tiny.tiny_task()
    method, optimiser = start(Valen, SMALL, task)
    train(method, task, optimiser, range(8))
    before, data = {key: value.clone() for key, value in method.state_dict().items()}, TinyData(task)
    for clock in (SECOND_STAGE, Clock(2, 10, 4, 5)):
        method.on_epoch_start(clock, data)
    assert data.resets == 0 and all(torch.equal(value, before[key]) for key, value in method.state_dict().items())
