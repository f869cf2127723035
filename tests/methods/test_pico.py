"""PiCO beyond its golden numbers and the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from methods.base import Clock
from methods.blocks import ring_write, unit
from methods.pico import PiCO
from tests.support.tiny import TinyOptimiser, tiny_batch, tiny_task, train

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
