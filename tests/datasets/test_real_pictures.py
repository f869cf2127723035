"""Real photographs: every method of the paper learns something on a cut of CIFAR-100 with a small network on a CPU.

Marked `slow`: it takes minutes and needs an .npz file with `train_images` (N, 32, 32, 3) uint8, `train_labels`,
`test_images` and `test_labels`, named by the environment variable CANDID_REAL_IMAGES.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmark.config.profile import load_profile
from tests.conftest import TinyBenchmark

CLASSES = 10
PROFILE = """
include = ["quick"]
title = "photographs"
seeds = [0]

[train]
epochs = 12
batch = 16
lr = 0.05
"""


def photographs(folder: Path) -> Path:
    """Ten classes with uniform candidates of rate 0.2 as a user's own data file."""
    path = os.environ.get("CANDID_REAL_IMAGES")
    if not path:
        pytest.skip("CANDID_REAL_IMAGES names no file")
    with np.load(path, allow_pickle=False) as cut:
        train, test = (cut[f"{part}_labels"] < CLASSES for part in ("train", "test"))
        x, y = cut["train_images"][train], cut["train_labels"][train].astype(np.int64)
        x_test, y_test = cut["test_images"][test], cut["test_labels"][test].astype(np.int64)
    candidates = np.random.default_rng(0).random((len(y), CLASSES)) < 0.2
    candidates[np.arange(len(y)), y] = True
    out = folder / "photographs.npz"
    np.savez(out, x=x, y=y, candidates=candidates, x_test=x_test, y_test=y_test)
    return out


@pytest.mark.slow
def test_every_method_learns_on_photographs(forked_benchmark: Callable[..., TinyBenchmark], tmp_path: Path) -> None:
    data = photographs(tmp_path)
    bench = forked_benchmark("photographs", PROFILE)
    methods = load_profile("quick").methods
    words = ("--methods", ",".join(methods), "--dataset", str(data), "--set", "backbone.name=small-cnn")
    done = bench.run("run", *words)
    accuracies = {d["method"]: d["summary"]["accuracy"] for d in bench.documents() if d["status"] == "done"}
    print(accuracies)
    assert set(accuracies) == set(methods), done.stdout + done.stderr
    chance = 100 / CLASSES
    assert all(accuracy > chance + 5 for accuracy in accuracies.values()), accuracies
