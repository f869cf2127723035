"""Networks for feature tables: depth, width, order of layers, feature layer, Xavier start."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import nn

from methods.blocks import Classifier
from methods.networks.backbones import MLP, Layers, factory
from tests.support import tiny


def test_layers_are_as_asked_for() -> None:
    deep = MLP(20, Layers(width=8, depth=3, order="relu-bn", features=5))
    kinds = [type(layer) for layer in deep.layers]
    assert kinds == [nn.Linear, nn.ReLU, nn.BatchNorm1d] * 3 + [nn.Linear]
    assert deep.feature_dim == 5 and deep(torch.randn(4, 20)).shape == (4, 5, 1, 1)
    usual = MLP(20)
    assert [type(layer) for layer in usual.layers] == [nn.Linear, nn.BatchNorm1d, nn.ReLU] and usual.feature_dim == 500


def test_xavier_reaches_the_classifier_too() -> None:
    task = replace(tiny.tiny_task(), backbone=factory("linear", 200, shape=Layers(xavier=True)))
    weight = Classifier(task).head.weight.detach()
    bound = math.sqrt(6 / (200 + weight.shape[0]))
    assert 1 / math.sqrt(200) < float(weight.abs().max()) <= bound  # torch's own start ends at 1/√200
