"""Weight files: whom they reach, and that candidate labels never outlive the file that made them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmark.plan.selection import Choice, select
from benchmark.plan.spec import RunSpec
from benchmark.train.candidates import candidate_set
from benchmark.train.loading import dataset_of
from datasets.labels.candidates import CandidateSet
from methods.parts.backbones import factory

PROFILE = """
title = "weights"
seeds = [0]
methods = ["proden"]
datasets = ["digits"]

[data.digits]
generator = "instance"
rate = 0.3
settings = { test = 1500 }
backbone = { name = "small-cnn-characters" }
annotator = { network = "small-cnn-characters", epochs = 1, batch = 32 }
"""


def spec_of(folder: Path, *settings: str) -> RunSpec:
    profile = folder / "weights.toml"
    profile.write_text(PROFILE)
    return select(str(profile), Choice(settings=settings)).specs()[0]


def candidates_of(spec: RunSpec, results: Path) -> CandidateSet:
    return candidate_set(spec, dataset_of(spec, Path("nowhere")), results, "cpu")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two weight files of the small network."""
    paths = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        paths.append(str(tmp_path / f"{seed}.pth"))
        torch.save(factory("small-cnn-characters", pretrained=False)().state_dict(), paths[-1])
    return paths[0], paths[1]


def test_another_weight_file_makes_other_candidates_whatever_was_made_before(
    tmp_path: Path, files: tuple[str, str]
) -> None:
    first, second = (spec_of(tmp_path, f"backbone.weights={file}") for file in files)
    before = candidates_of(first, tmp_path / "shared")
    after = candidates_of(second, tmp_path / "shared")
    assert before.sha256 != after.sha256
    assert candidates_of(second, tmp_path / "fresh").sha256 == after.sha256
    assert candidates_of(first, tmp_path / "shared").sha256 == before.sha256
    assert len(list((tmp_path / "shared").rglob("annotator-*.npz"))) == 2


def test_a_moved_weight_file_finds_its_candidates(tmp_path: Path, files: tuple[str, str]) -> None:
    results, moved = tmp_path / "results", tmp_path / "moved.pth"
    before = candidates_of(spec_of(tmp_path, f"backbone.weights={files[0]}"), results)
    moved.write_bytes(Path(files[0]).read_bytes())
    assert candidates_of(spec_of(tmp_path, f"backbone.weights={moved}"), results).sha256 == before.sha256
    assert len(list(results.rglob("annotator-*.npz"))) == 1
