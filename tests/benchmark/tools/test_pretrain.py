"""The embedded pretrained encoders: what they have seen, that their files are used, that they can be made anew."""

import tomllib

import pytest
import torch
from safetensors.torch import load_file

from benchmark.config.profile import PROFILES
from benchmark.tools import pretrain
from datasets import digits, glyphs
from methods.networks.backbones import WEIGHTS, factory

ENCODERS = pytest.mark.parametrize("name", pretrain.UNSEEN)


def test_it_has_seen_no_character_of_the_quick_profile(tmp_path):
    data = tomllib.loads((PROFILES / "quick.toml").read_text())["data"]
    settings = data["glyphs"]["settings"]
    quick = glyphs.load(tmp_path, **settings | {"train": 40, "test": 40})
    for name, used in data.items():
        encoder = used["backbone"]["name"]
        seen = set(pretrain.other_characters(pretrain.UNSEEN[encoder], 200, 200).class_names)
        assert used["annotator"]["network"] == encoder
        assert len(seen) == {"small-cnn-characters": 71, "small-cnn-signs": 55}[encoder]
        assert name != "glyphs" or not seen & set(quick.class_names)
        assert not seen & set(digits.load(tmp_path).class_names)
    assert settings.get("drawing", 0) != pretrain.DRAWING


@ENCODERS
def test_the_file_is_what_the_encoder_starts_from(name):
    stored = load_file(WEIGHTS / f"{name}.safetensors")
    built = factory(name)().state_dict()
    assert set(stored) == set(built)
    assert all(torch.equal(stored[name], built[name]) for name in stored)
    untrained = factory(name, pretrained=False)().state_dict()
    assert not torch.equal(untrained["layers.0.weight"], stored["layers.0.weight"])


def test_it_can_be_made_anew():
    dataset = pretrain.other_characters(1, 1000, 200)
    (first, accuracy), (again, _) = (pretrain.pretrain(dataset, epochs=2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert accuracy > 100 / dataset.num_classes
