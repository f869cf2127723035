"""The embedded pretrained encoder: what it has seen, that its file is used, that it can be made anew."""

import tomllib

import pytest
import torch
from safetensors.torch import load_file

from benchmark.plan.profile import PROFILES
from benchmark.tools import pretrain
from datasets import digits, glyphs
from methods.parts.backbones import CHARACTERS, BackboneError, factory


def test_it_has_seen_no_character_of_the_quick_profile(tmp_path):
    settings = tomllib.loads((PROFILES / "quick.toml").read_text())["data"]["glyphs"]["settings"]
    quick = glyphs.load(tmp_path, **settings | {"train": 20, "test": 20})
    seen = set(pretrain.other_characters(200, 200).class_names)
    assert len(seen) == 71
    assert not seen & set(quick.class_names)
    assert not seen & set(digits.load(tmp_path).class_names)
    assert settings.get("drawing", 0) != pretrain.DRAWING


def test_its_images_have_the_labels_of_their_characters():
    everything = glyphs.load(pretrain.Path(), train=300, test=100, drawing=pretrain.DRAWING, side=16)
    dataset = pretrain.other_characters(300, 100)
    kept = [row for row in range(300) if everything.class_names[row % 100] in dataset.class_names]
    names = [dataset.class_names[label] for label in dataset.train.labels]
    assert names == [everything.class_names[row % 100] for row in kept]
    assert torch.equal(dataset.train.images, everything.train.images[kept])


def test_the_file_is_what_the_encoder_starts_from():
    stored = load_file(CHARACTERS)
    built = factory("small-cnn-characters")().state_dict()
    assert set(stored) == set(built)
    assert all(torch.equal(stored[name], built[name]) for name in stored)
    untrained = factory("small-cnn-characters", pretrained=False)().state_dict()
    assert not torch.equal(untrained["layers.0.weight"], stored["layers.0.weight"])


def test_it_knows_printed_characters(tmp_path):
    """Unseen drawings of its characters lie nearer to their own class's mean feature than to 70 others."""
    encoder = factory("small-cnn-characters")().eval()
    dataset = pretrain.other_characters(3000, 500)
    images = pretrain.ViewLoader(dataset, 0, torch.device("cpu"))
    with torch.inference_mode():
        train = images.train_views(torch.arange(len(dataset.train)), ("plain",), 0)[0]
        features = encoder(train).mean((2, 3))
        test = torch.cat([encoder(batch).mean((2, 3)) for batch in images.test_batches()])
    means = torch.stack([features[dataset.train.labels == c].mean(0) for c in range(dataset.num_classes)])
    nearest = torch.cdist(test, means).argmin(1)
    assert (nearest == dataset.test.labels).double().mean() > 0.5  # chance is 0.014


def test_it_can_be_made_anew():
    dataset = pretrain.other_characters(1000, 200)
    (first, accuracy), (again, _) = (pretrain.pretrain(dataset, epochs=2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert accuracy > 100 / dataset.num_classes


@pytest.mark.parametrize("content", ["not a tensor file", torch.zeros(3)])
def test_a_file_that_holds_no_weights_is_one_sentence(tmp_path, content):
    path = tmp_path / "weights.pth"
    path.write_text(content) if isinstance(content, str) else torch.save(content, path)
    with pytest.raises(BackboneError, match=r"weights\.pth is no plain state dict") as caught:
        factory("small-cnn-characters", weights=str(path))()
    assert "\n" not in str(caught.value)
