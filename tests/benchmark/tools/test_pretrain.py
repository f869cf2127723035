"""The embedded pretrained encoders: what they have seen, that their files are used, that they can be made anew."""

import tomllib

import pytest
import torch
from safetensors.torch import load_file

from benchmark.config.profile import PROFILES
from benchmark.tools import pretrain
from datasets import digits, glyphs
from methods.networks.backbones import WEIGHTS, BackboneError, factory

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
def test_its_images_have_the_labels_of_their_characters(name):
    everything = glyphs.load(pretrain.Path(), train=300, test=100, drawing=pretrain.DRAWING, side=16)
    dataset = pretrain.other_characters(pretrain.UNSEEN[name], 300, 100)
    kept = [row for row in range(300) if everything.class_names[row % 100] in dataset.class_names]
    names = [dataset.class_names[label] for label in dataset.train.labels]
    assert names == [everything.class_names[row % 100] for row in kept]
    assert torch.equal(dataset.train.images, everything.train.images[kept])


@ENCODERS
def test_the_file_is_what_the_encoder_starts_from(name):
    stored = load_file(WEIGHTS / f"{name}.safetensors")
    built = factory(name)().state_dict()
    assert set(stored) == set(built)
    assert all(torch.equal(stored[name], built[name]) for name in stored)
    untrained = factory(name, pretrained=False)().state_dict()
    assert not torch.equal(untrained["layers.0.weight"], stored["layers.0.weight"])


@ENCODERS
def test_it_knows_printed_characters(name):
    """Unseen drawings of its characters lie nearer to their own class's mean feature than to all others."""
    encoder = factory(name)().eval()
    dataset = pretrain.other_characters(pretrain.UNSEEN[name], 3000, 500)
    images = pretrain.ViewLoader(dataset, 0, torch.device("cpu"))
    with torch.inference_mode():
        train = images.train_views(torch.arange(len(dataset.train)), ("plain",), 0)[0]
        features = encoder(train).mean((2, 3))
        test = torch.cat([encoder(batch).mean((2, 3)) for batch in images.test_batches()])
    means = torch.stack([features[dataset.train.labels == c].mean(0) for c in range(dataset.num_classes)])
    nearest = torch.cdist(test, means).argmin(1)
    assert (nearest == dataset.test.labels).double().mean() > 0.5  # chance is below 0.02


def test_it_can_be_made_anew():
    dataset = pretrain.other_characters(1, 1000, 200)
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
