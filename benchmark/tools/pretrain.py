"""Makes the weights of `small-cnn-signs`, the pretrained encoder of the `quick` profile, and of `small-cnn-characters`.

The paper starts from an ImageNet network where training sets are small; this is the same start in small. The encoder
learns, from clean labels, those characters of `glyphs` that no set of `quick` contains: neither of the first two look-alikes
of a group (`small-cnn-characters`: not the first) and no digit. The images come from a drawing of their own.

    python -m benchmark.tools.pretrain [NAME]     # three minutes on one core; the same bytes on the same machine and versions
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from benchmark.trainer.inputs import ViewLoader
from benchmark.trainer.seeding import derive
from datasets import glyphs
from datasets.base import Dataset, Split
from methods.networks.backbones import WEIGHTS, SmallCNN

UNSEEN = {"small-cnn-signs": 2, "small-cnn-characters": 1}  # first look-alikes of every group that are left out
DRAWING = 1  # `quick` has drawing 0
IMAGES, TEST_IMAGES = 60_000, 4_000
EPOCHS, BATCH, PEAK_LR, WEIGHT_DECAY = 16, 64, 0.2, 5e-4
VIEWS = ("weak", "strong")  # in turn


def other_characters(unseen: int, images: int = IMAGES, test_images: int = TEST_IMAGES) -> Dataset:
    """Glyphs of 16×16 without the first `unseen` look-alikes and without digits. Counts are of all 100 characters."""
    everything = glyphs.load(Path(), train=images, test=test_images, drawing=DRAWING, side=16)
    kept = [
        c for c, sign in enumerate(everything.class_names) if c % glyphs.GROUP_SIZE >= unseen and not sign.isdigit()
    ]
    number = torch.full((everything.num_classes,), -1)
    number[kept] = torch.arange(len(kept))

    def of(split: Split) -> Split:
        labels = number[split.labels]
        return Split(split.images[labels >= 0], labels[labels >= 0])

    names = tuple(everything.class_names[c] for c in kept)
    return replace(
        everything,
        num_classes=len(kept),
        class_names=names,
        train=of(everything.train),
        test=of(everything.test),
        superclass=None,
    )


def pretrain(dataset: Dataset, epochs: int = EPOCHS) -> tuple[SmallCNN, float]:
    """An encoder trained with clean labels, and the test accuracy (%) that it reaches with a linear layer."""
    torch.set_num_threads(1)
    torch.manual_seed(derive(0, "pretraining"))
    encoder = SmallCNN()
    layers = (encoder, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(encoder.feature_dim, dataset.num_classes))
    network = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = ViewLoader(dataset, derive(0, "pretraining views"), torch.device("cpu"), channels_last=True)
    steps = len(dataset.train) // BATCH
    sgd = torch.optim.SGD(network.parameters(), PEAK_LR, momentum=0.9, weight_decay=WEIGHT_DECAY, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(sgd, PEAK_LR, total_steps=epochs * steps)
    for epoch in range(epochs):
        for step, rows in enumerate(torch.randperm(len(dataset.train))[: steps * BATCH].split(BATCH)):
            (view,) = inputs.train_views(rows, (VIEWS[step % 2],), epoch)
            loss = F.cross_entropy(network(view), dataset.train.labels[rows])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            schedule.step()
    network.eval()
    with torch.inference_mode():
        predicted = torch.cat([network(batch).argmax(1) for batch in inputs.test_batches()])
    return encoder, 100 * (predicted == dataset.test.labels).double().mean().item()


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "small-cnn-signs"
    dataset = other_characters(UNSEEN[name])
    encoder, accuracy = pretrain(dataset)
    WEIGHTS.mkdir(exist_ok=True)
    save_file({key: value.contiguous() for key, value in encoder.state_dict().items()}, WEIGHTS / f"{name}.safetensors")
    print(f"{name}: {dataset.num_classes} characters, test accuracy {accuracy:.1f} %")


if __name__ == "__main__":
    main()
