"""The batched views against torchvision, image by image, and the laws their parameters follow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as TF

from datasets.views import autoaugment, counter, ops, views
from datasets.views.recipes import CIFAR, DIGITS, FINE_GRAINED, Recipe
from datasets.views.views import RAND_AUGMENT, Draws, Views

MANY = 20_000
KNOWN = [0.6103202087053591, 0.09175605055651759, 0.3572016429610041, 0.728979989061718]


def photograph() -> Tensor:
    """(3, H, W) uint8, from matplotlib's sample data."""
    path = Path(matplotlib.get_data_path()) / "sample_data" / "grace_hopper.jpg"
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1).contiguous()


def sample_images(size: int, count: int = 12) -> Tensor:
    """(count, 3, size, size) uint8: patches of a photograph, one flat and one two-level image."""
    photo = photograph()
    generator = torch.Generator().manual_seed(size)
    result = []
    for _ in range(count - 2):
        side = int(torch.randint(size, min(photo.shape[1:]), (), generator=generator))
        top, left = (int(torch.randint(0, s - side + 1, (), generator=generator)) for s in photo.shape[1:])
        result.append(TF.resized_crop(photo, top, left, side, side, [size, size]))
    result += [torch.full((3, size, size), 77, dtype=torch.uint8)]
    result += [(torch.rand(3, size, size, generator=generator) < 0.5).to(torch.uint8) * 200 + 20]
    return torch.stack(result)


def magnitudes(low: float, high: float, count: int) -> Tensor:
    return low + (high - low) * torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def draws_for(count: int, stream: str = "test") -> Draws:
    return Draws(counter.uniforms(0, 0, stream, torch.arange(count), views.DRAWS_PER_VIEW))


# counter-based randomness --------------------------------------------------------------------------------------------


def test_numbers_are_uniform_and_independent_over_slots_indices_and_epochs() -> None:
    base = counter.uniforms(1, 2, "weak0", torch.arange(MANY), 8)
    assert base.min() >= 0 and base.max() < 1
    counts = torch.histc(base, 64, 0, 1)
    expected = base.numel() / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # chi-square with 63 degrees of freedom, p ≈ 2e-5
    bound = 5 / math.sqrt(MANY)
    slots = torch.corrcoef(base.T) - torch.eye(8)
    assert slots.abs().max() < bound
    neighbours = torch.corrcoef(torch.stack((base[1:, 0], base[:-1, 0])))[0, 1]
    others = [
        counter.uniforms(1, 3, "weak0", torch.arange(MANY), 8),
        counter.uniforms(2, 2, "weak0", torch.arange(MANY), 8),
        counter.uniforms(1, 2, "weak1", torch.arange(MANY), 8),
    ]
    across = [torch.corrcoef(torch.stack((base[:, 0], other[:, 0])))[0, 1] for other in others]
    assert max(abs(float(c)) for c in (neighbours, *across)) < bound


def test_a_number_depends_on_its_own_row_and_slot_only() -> None:
    index = torch.tensor([5, 123456789, 0, 7])
    everything = counter.uniforms(9, 1, 4, index, 10)
    assert torch.equal(counter.uniforms(9, 1, 4, index[[3, 1]], 6), everything[[3, 1], :6])


def test_known_numbers_do_not_change_between_versions() -> None:
    got = counter.uniforms(0, 0, "weak0", torch.tensor([0, 1]), 2)
    assert got.flatten().tolist() == pytest.approx(KNOWN, abs=1e-15)


# operations against torchvision --------------------------------------------------------------------------------------

Reference = Callable[[Tensor, float], Tensor]
NEAREST = v2.InterpolationMode.NEAREST


def shear(image: Tensor, x: float, y: float) -> Tensor:
    degrees = [math.degrees(math.atan(x)), math.degrees(math.atan(y))]
    return TF.affine(image, 0.0, [0, 0], 1.0, degrees, NEAREST, center=[0, 0])


def shift(image: Tensor, x: float, y: float) -> Tensor:
    return TF.affine(image, 0.0, [x, y], 1.0, [0.0, 0.0], NEAREST)


# operation, range, torchvision's, largest difference in levels, share of values that may differ at all
CASES: dict[str, tuple[ops.Operation, float, float, Reference, int, float]] = {
    "autocontrast": (ops.autocontrast, 0, 0, lambda i, v: TF.autocontrast(i), 1, 0.0),
    "brightness": (ops.brightness, 0.05, 1.9, TF.adjust_brightness, 0, 0.0),
    "saturation": (ops.saturation, 0.05, 1.9, TF.adjust_saturation, 1, 0.01),
    "contrast": (ops.contrast, 0.05, 1.9, TF.adjust_contrast, 1, 0.001),
    "equalize": (ops.equalize, 0, 0, lambda i, v: TF.equalize(i), 0, 0.0),
    "posterize": (ops.posterize, 4, 8, lambda i, v: TF.posterize(i, int(v)), 0, 0.0),
    "sharpness": (ops.sharpness, 0.05, 1.9, TF.adjust_sharpness, 1, 0.0001),
    "solarize": (ops.solarize, 0, 255, TF.solarize, 0, 0.0),
    "invert": (ops.invert, 0, 0, lambda i, v: TF.invert(i), 0, 0.0),
    "hue": (ops.hue, -0.1, 0.1, TF.adjust_hue, 1, 0.01),
    "grayscale": (ops.grayscale, 0, 0, lambda i, v: TF.rgb_to_grayscale(i, 3), 1, 0.001),
    "rotate": (ops.rotate, -30, 30, lambda i, v: TF.rotate(i, v, NEAREST), 255, 0.0005),
    "shear_x": (ops.shear_x, -0.3, 0.3, lambda i, v: shear(i, v, 0), 255, 0.0005),
    "shear_y": (ops.shear_y, -0.3, 0.3, lambda i, v: shear(i, 0, v), 255, 0.0005),
    "translate_x": (ops.translate_x, -0.3, 0.3, lambda i, v: shift(i, -v * i.shape[2], 0), 0, 0.0),
    "translate_y": (ops.translate_y, -0.3, 0.3, lambda i, v: shift(i, 0, -v * i.shape[1]), 0, 0.0),
}


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("name", CASES)
def test_operations_agree_with_torchvision(name: str, size: int) -> None:
    operation, low, high, reference, levels, share = CASES[name]
    images = sample_images(size)
    v = magnitudes(low, high, len(images))
    ours = operation(images.to(torch.float32), v)
    theirs = torch.stack([reference(i, float(m)) for i, m in zip(images, v, strict=True)]).to(torch.float32)
    difference = (ours - theirs).abs()
    assert difference.max() <= levels
    assert (difference > 0).float().mean() <= share


def test_a_warp_fills_with_the_wanted_grey() -> None:
    images = sample_images(32)
    v = magnitudes(-30, 30, len(images))
    ours = autoaugment.operations("v2")["Rot"](images.float(), v)
    theirs = torch.stack([TF.rotate(i, float(m), NEAREST, fill=[128.0]) for i, m in zip(images, v, strict=True)])
    assert (ours != theirs).float().mean() < 0.0005


@pytest.mark.parametrize("name", ["ShX", "ShY"])
def test_the_bicubic_shear_agrees_with_pillow(name: str) -> None:
    images = sample_images(32)
    v = magnitudes(-0.3, 0.3, len(images))
    ours = autoaugment.operations("extended")[name](images.float(), v)
    for image, slope, got in zip(images, v.tolist(), ours, strict=True):
        matrix = (1, slope, 0, 0, 1, 0) if name == "ShX" else (1, 0, 0, slope, 1, 0)
        pil_image = TF.to_pil_image(image)
        theirs = pil_image.transform(
            pil_image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BICUBIC, fillcolor=(128,) * 3
        )
        difference = (got - TF.pil_to_tensor(theirs)).abs()
        assert difference.max() <= 1


@pytest.mark.parametrize(("size", "recipe"), [(32, CIFAR), (80, CIFAR), (256, FINE_GRAINED)])
def test_crops_agree_with_torchvision_inside_the_valid_area(size: int, recipe: Recipe) -> None:
    images = sample_images(size)
    heights = torch.full((len(images),), size)
    sizes = torch.stack((heights, heights - torch.arange(len(images)) * size // 24), 1)
    box = views.draw_crop(draws_for(len(images)), sizes, recipe.scale, recipe.ratio)
    assert ((box.left + box.width) <= sizes[:, 1]).all() and ((box.top + box.height) <= sizes[:, 0]).all()
    flip = torch.arange(len(images)) % 2 == 0
    start, length = torch.stack((box.top, box.left), 1), torch.stack((box.height, box.width), 1)
    zero, total = torch.zeros_like(start), torch.full_like(start, recipe.size)
    y, x = views._Source(images, recipe.size).taps(start, length, total, zero, flip)
    ours = ops.resample(ops.as_columns(images), x, y)
    for k, image in enumerate(images):
        area = (int(box.top[k]), int(box.left[k]), int(box.height[k]), int(box.width[k]))
        theirs = TF.resized_crop(image, *area, [recipe.size, recipe.size], antialias=True)
        theirs = TF.horizontal_flip(theirs) if flip[k] else theirs
        assert (ours[k] - theirs).abs().max() <= 1


def some_crops(images: Tensor, recipe: Recipe) -> views.Crop:
    sizes = torch.tensor(images.shape[2:]).expand(len(images), 2)
    box = views.draw_crop(draws_for(len(images)), sizes, recipe.scale, recipe.ratio)
    start, length = torch.stack((box.top, box.left), 1), torch.stack((box.height, box.width), 1)
    return views.Crop(start, length, torch.arange(len(images)) % 2 == 0)


@pytest.mark.parametrize("size", [32, 16])
def test_crops_by_matrix_products_are_those_by_weighted_rows(size: int) -> None:
    images = sample_images(32, count=60)[:, :, :, :28]
    crop = some_crops(images, CIFAR)
    zero = torch.zeros_like(crop.start)
    y, x = views._Source(images, size).taps(crop.start, crop.length, zero + size, zero, crop.mirror)
    rows = ops.resample(ops.as_columns(images), x, y)
    with torch.autocast("cpu", torch.bfloat16):  # as while a method looks at the training set under mixed precision
        products = ops.crop_by_products(images, crop.start, crop.length, crop.mirror, size)
    assert torch.equal(products.float(), rows)


def test_crops_one_by_one_are_torchvisions() -> None:
    images = sample_images(256)
    crop = some_crops(images, FINE_GRAINED)
    ours = ops.crop_one_by_one(images, crop.start, crop.length, crop.mirror, torch.empty(len(images), 3, 224, 224))
    for image, got, start, length, mirrored in zip(
        images, ours, crop.start.tolist(), crop.length.tolist(), crop.mirror.tolist(), strict=True
    ):
        theirs = TF.resized_crop(image, *start, *length, [224, 224], antialias=True)
        assert torch.equal(got, (TF.horizontal_flip(theirs) if mirrored else theirs).float())


@pytest.mark.parametrize("size", [32, 13])
def test_rounds_are_the_same_batched_and_one_by_one(size: int) -> None:
    images = sample_images(size, count=200)
    choice, magnitude = views.draw_rand_augment(draws_for(200))
    choice[:, 1] = torch.where(torch.arange(200) % 3 == 0, choice[:, 1], 5)  # a round in which most are left alone
    choice[:, 2] = torch.where(torch.arange(200) % 4 == 0, choice[:, 2], 2)  # one in which many get the same
    operations = tuple(operation for operation, *_ in RAND_AUGMENT)
    single = ops.apply_one_by_one(images.float(), choice, magnitude, operations)
    assert torch.equal(ops.apply_in_rounds(images, choice, magnitude, operations).float(), single)


def test_the_test_transform_is_resize_then_centre_crop() -> None:
    photo = TF.resize(photograph(), [300], antialias=True)
    padded = torch.zeros(2, 3, 400, 380, dtype=torch.uint8)
    padded[0, :, : photo.shape[1], : photo.shape[2]] = photo
    padded[1, :, : photo.shape[2], : photo.shape[1]] = photo.transpose(1, 2)
    sizes = torch.tensor([photo.shape[1:], photo.shape[:0:-1]])
    finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(FINE_GRAINED.mean, FINE_GRAINED.std)])
    for row, image in enumerate((photo, photo.transpose(1, 2))):
        theirs = finish(TF.center_crop(TF.resize(image, [256], antialias=True), [224, 224]))
        ours = Views(FINE_GRAINED, 0).test(padded, sizes)[row]
        assert (ours - theirs).abs().max() < 1.01 / 255 / min(FINE_GRAINED.std)


# the laws of the draws -----------------------------------------------------------------------------------------------


def test_randaugment_draws_each_operation_equally_often_over_its_whole_range() -> None:
    choice, magnitude = views.draw_rand_augment(draws_for(MANY))
    frequency = torch.bincount(choice.flatten(), minlength=14) / choice.numel()
    assert len(RAND_AUGMENT) == 14 and (frequency - 1 / 14).abs().max() < 0.005
    repeated = (choice[:, 0] == choice[:, 1]).float().mean()
    assert abs(repeated - 1 / 14) < 0.01
    for k, (_, low, high) in enumerate(RAND_AUGMENT):
        drawn = magnitude[choice == k]
        assert drawn.min() >= low and drawn.max() <= high
        assert abs(drawn.mean() - (low + high) / 2) <= 0.02 * (high - low)
        assert drawn.max() - drawn.min() >= 0.99 * (high - low)


@pytest.mark.parametrize(
    ("draw", "share", "tolerance"), [(views.draw_cutout, 0.085, 0.003), (views.draw_hole, 0.19, 0.005)]
)
def test_erased_squares_cover_their_share_on_average(draw: Callable, share: float, tolerance: float) -> None:
    covered = ops.erase(torch.zeros(MANY, 3, 32, 32), draw(draws_for(MANY), 32), (1.0, 1.0, 1.0))[:, 0]
    assert covered.mean() == pytest.approx(share, abs=tolerance)
    assert draw is views.draw_cutout or covered.sum((1, 2)).max() == 256


def test_crops_follow_the_law_of_random_resized_crop() -> None:
    sizes = torch.tensor([[256, 340]]).expand(MANY, 2)
    box = views.draw_crop(draws_for(MANY), sizes, (0.08, 1.0), (3 / 4, 4 / 3))
    torch.manual_seed(0)
    transform = v2.RandomResizedCrop(224)
    image = torch.zeros(3, 256, 340, dtype=torch.uint8)
    theirs = [transform.make_params([image]) for _ in range(4000)]
    for ours, key in ((box.top, "top"), (box.left, "left"), (box.height, "height"), (box.width, "width")):
        reference = torch.tensor([float(p[key]) for p in theirs])
        assert abs(ours.float().mean() - reference.mean()) < 5 * reference.std() / math.sqrt(4000)
        assert abs(ours.float().std() / reference.std() - 1) < 0.06


def test_an_image_too_narrow_for_any_crop_gets_the_central_one() -> None:
    sizes = torch.tensor([[256, 20], [20, 256], [256, 20]])
    box = views.draw_crop(draws_for(3), sizes, (0.9, 1.0), (3 / 4, 4 / 3))
    assert box.width.tolist() == [20, 27, 20] and box.height.tolist() == [27, 20, 27]
    assert box.top.tolist() == [114, 0, 114] and box.left.tolist() == [0, 114, 0]


def test_jitter_happens_in_80_percent_in_every_order_and_grey_in_20() -> None:
    choice, magnitude = views.draw_jitter(draws_for(MANY), CIFAR)
    happens = choice[:, 0] != 5
    assert abs(happens.float().mean() - 0.8) < 0.015
    assert abs((choice[:, 4] == 4).float().mean() - 0.2) < 0.015
    orders = choice[happens, :4]
    assert torch.equal(orders.sort(1).values, torch.arange(4).expand_as(orders))
    _, counts = orders.unique(dim=0, return_counts=True)
    assert len(counts) == 24 and (counts / len(orders) - 1 / 24).abs().max() < 0.008
    for operation, low, high in ((0, 0.6, 1.4), (1, 0.6, 1.4), (2, 0.6, 1.4), (3, -0.1, 0.1)):
        drawn = magnitude[:, :4][choice[:, :4] == operation]
        assert drawn.min() >= low and drawn.max() <= high and drawn.max() - drawn.min() > 0.99 * (high - low)


def test_half_of_the_images_are_flipped_and_digits_never() -> None:
    ramp = torch.arange(32, dtype=torch.uint8).mul(8).expand(2000, 3, 32, 32).contiguous()
    for recipe, share in ((CIFAR, 0.5), (DIGITS, 0.0)):
        plain_colour = replace(recipe, jitter_probability=0.0, gray=0.0)
        (weak,) = Views(plain_colour, 0)(ramp, torch.arange(2000), ("weak",), 0)
        flipped = (weak[:, 0, 0, 0] > weak[:, 0, 0, -1]).float().mean()
        assert abs(flipped - share) < 0.05


# policies ------------------------------------------------------------------------------------------------------------

SHORT = {"ShearX": "ShX", "ShearY": "ShY", "TranslateX": "TrX", "TranslateY": "TrY"}


@pytest.mark.parametrize(
    ("kind", "policy"), [("cifar", v2.AutoAugmentPolicy.CIFAR10), ("imagenet", v2.AutoAugmentPolicy.IMAGENET)]
)
def test_the_v2_policies_are_torchvisions(kind: Literal["cifar", "imagenet"], policy: v2.AutoAugmentPolicy) -> None:
    theirs = v2.AutoAugment(policy)._policies
    named = [tuple((SHORT.get(n, n[:3]), p, level or 0) for n, p, level in pair) for pair in theirs]
    assert autoaugment.sub_policies(kind, "v2") == named


def test_the_extended_policies_have_the_released_lengths() -> None:
    cifar = autoaugment.sub_policies("cifar", "extended")
    imagenet = autoaugment.sub_policies("imagenet", "extended")
    assert (len(cifar), len(imagenet)) == (97, 119)
    assert (("Equ", 0.2, 0), ("Equ", 0.8, 0)) in cifar and (("Equ", 0.2, 0), ("Equ", 0.6, 0)) not in cifar
    assert imagenet[25:] == cifar[:-3]


@pytest.mark.parametrize("reading", ["v2", "extended"])
def test_autoaugment_draws_follow_probabilities_and_signs(reading: Literal["v2", "extended"]) -> None:
    table = autoaugment.tables("cifar", reading, 32, torch.device("cpu"))
    draws = draws_for(MANY)
    choice, magnitude = autoaugment.draw(table, draws.one(), draws.take(2), draws.take(2))
    expected = torch.zeros(len(table.operations), dtype=torch.float64)
    expected.index_add_(0, table.choice.flatten(), table.probability.flatten() / table.choice.numel())
    expected[0] += 1 - expected.sum()
    frequency = torch.bincount(choice.flatten(), minlength=len(expected)) / choice.numel()
    assert (frequency - expected).abs().max() < 0.01
    names = list(autoaugment.operations(reading))
    rotations = magnitude[choice == names.index("Rot")]
    assert (rotations < 0).any() == (reading == "v2")
    shifts = magnitude[choice == names.index("TrY")] * 32
    assert (shifts < 0).any() and (shifts > 0).any()
    assert bool((shifts == shifts.trunc()).all()) == (reading == "v2")
    factors = magnitude[choice == names.index("Col")]
    assert factors.min() >= 0.1 - 1e-9 and factors.max() <= 1.9 + 1e-9


# whole views ---------------------------------------------------------------------------------------------------------

ALL = ("weak", "strong", "strong", "distill", "plain")


FINE = [replace(FINE_GRAINED, size=64, autoaugment="extended"), replace(FINE_GRAINED, size=128)]
CROP_FLIP = [replace(recipe, weak="crop-flip", strong="autoaugment") for recipe in (CIFAR, FINE[1])]


@pytest.mark.parametrize("recipe", [CIFAR, *FINE, DIGITS, *CROP_FLIP])
def test_a_view_does_not_depend_on_batch_order_or_neighbours(recipe: Recipe) -> None:
    images = sample_images(72 if recipe.size > 32 else recipe.size, count=40)
    index = torch.arange(40) * 17
    make = Views(recipe, seed=3)
    together = make(images, index, ALL, epoch=2)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    shuffled = make(images[order], index[order], ALL, epoch=2)
    for whole, other in zip(together, shuffled, strict=True):
        assert torch.equal(whole[order], other)
    for row in (0, 7, 39):
        alone = make(images[row : row + 1], index[row : row + 1], ALL, epoch=2)
        for whole, single in zip(together, alone, strict=True):
            assert torch.equal(whole[row], single[0])


@pytest.mark.parametrize("size", [64, 128])  # batched, and one by one
def test_padding_does_not_change_a_view(size: int) -> None:
    images, index = sample_images(72), torch.arange(12)
    padded = torch.full((12, 3, 80, 100), 255, dtype=torch.uint8)
    padded[:, :, :72, :72] = images
    make = Views(replace(FINE_GRAINED, size=size, test_resize=size + 6), seed=0)
    sizes = torch.tensor([[72, 72]]).expand(12, 2)
    for a, b in zip(make(images, index, ALL, 0), make(padded, index, ALL, 0, sizes), strict=True):
        assert torch.equal(a, b)


def test_repeated_names_epochs_and_seeds_give_other_views() -> None:
    images, index = sample_images(32), torch.arange(12)
    make = Views(CIFAR, seed=0)
    first, second = make(images, index, ("strong", "strong"), 0)
    assert not torch.equal(first, second)
    assert torch.equal(make(images, index, ("weak", "strong"), 0)[1], first)
    assert not torch.equal(make(images, index, ("strong",), 1)[0], first)
    assert not torch.equal(Views(CIFAR, seed=1)(images, index, ("strong",), 0)[0], first)


def levels_of(view: Tensor, recipe: Recipe) -> Tensor:
    return ((view * torch.tensor(recipe.std).view(3, 1, 1) + torch.tensor(recipe.mean).view(3, 1, 1)) * 255).round()


def test_crop_flip_is_a_padded_crop_of_a_flipped_image_and_every_shift_occurs() -> None:
    recipe = replace(CIFAR, weak="crop-flip")
    image = sample_images(32)[:1]
    made = levels_of(Views(recipe, 0)(image.expand(300, -1, -1, -1), torch.arange(300), ("weak",), 0)[0], recipe)
    padded = [v2.Pad(4, padding_mode="reflect")(side) for side in (image[0], image[0].flip(2))]
    crops = {(f, y, x): padded[f][:, y : y + 32, x : x + 32] for f in range(2) for y in range(9) for x in range(9)}
    equal = torch.stack([(made == crop).flatten(1).all(1) for crop in crops.values()])  # (162, 300)
    assert bool((equal.sum(0) == 1).all())
    found = [list(crops)[i] for i in equal.to(torch.int8).argmax(0).tolist()]
    assert [len(set(each)) for each in zip(*found, strict=True)] == [2, 9, 9]


def test_crop_flip_of_a_photograph_is_a_crop_of_the_resized_image() -> None:
    recipe = replace(FINE_GRAINED, weak="crop-flip")
    photo = photograph()[:, :400, :300]
    made = levels_of(Views(recipe, 0)(photo[None].expand(6, -1, -1, -1), torch.arange(6), ("weak",), 0)[0], recipe)
    resized = v2.Resize(256)(photo).float()
    for view in made:
        best = min(
            (side[:, y : y + 224, x : x + 224] - view).abs().max()
            for side in (resized, resized.flip(2))
            for y in range(resized.shape[1] - 223)
            for x in range(33)
            if (side[:, y, x] - view[:, 0, 0]).abs().max() <= 1
            and (side[:, y + 223, x + 223] - view[:, 223, 223]).abs().max() <= 1
        )
        assert best <= 1
    assert not torch.equal(made[0], made[1])


def test_a_recipe_of_one_view_leaves_the_others_as_they_are() -> None:
    images, index = sample_images(32), torch.arange(12)
    usual = Views(CIFAR, 0)(images, index, ALL, 0)
    plain = Views(replace(CIFAR, weak="plain"), 0)(images, index, ALL, 0)
    assert torch.equal(plain[0], usual[-1]) and all(map(torch.equal, plain[1:], usual[1:]))
    other = Views(replace(CIFAR, strong="autoaugment"), 0)(images, index, ("weak", "strong"), 0)
    assert torch.equal(other[0], usual[0]) and not torch.equal(other[1], usual[1])
    digits = Views(replace(DIGITS, weak="crop-flip", strong="autoaugment"), 0)(images, index, ("weak", "strong"), 0)
    assert torch.equal(digits[1], Views(DIGITS, 0)(images, index, ("strong",), 0)[0])  # digits get no AutoAugment


def test_views_are_normalised_images_of_the_right_size() -> None:
    images, index = sample_images(32), torch.arange(12)
    for view in Views(CIFAR, 0)(images, index, ALL, 0):
        assert view.shape == (12, 3, 32, 32) and view.dtype == torch.float32
        levels = (view * torch.tensor(CIFAR.std).view(3, 1, 1) + torch.tensor(CIFAR.mean).view(3, 1, 1)) * 255
        assert (levels - levels.round()).abs().max() < 1e-3
        assert levels.min() > -1e-3 and levels.max() < 255.001
    assert torch.equal(Views(CIFAR, 0).test(images), Views(CIFAR, 0)(images, index, ("plain",), 5)[0])


def test_an_image_of_the_right_size_is_left_as_it_is_by_the_test_transform() -> None:
    for channels in (1, 3):
        images = sample_images(32)[:, :channels]
        resampled = Views(CIFAR, 0).test(images, sizes=torch.full((len(images), 2), 32))  # sizes might be smaller ones
        assert torch.equal(Views(CIFAR, 0).test(images), resampled)


def test_one_grey_channel_becomes_three() -> None:
    grey = sample_images(32)[:, :1, :28, :28]
    for view in Views(DIGITS, 0)(grey, torch.arange(12), ("strong", "plain"), 0):
        assert view.shape == (12, 3, DIGITS.size, DIGITS.size)
    plain = Views(DIGITS, 0).test(grey)
    assert torch.equal(plain[:, 0], plain[:, 2])


def test_wrong_use_is_said_in_a_sentence() -> None:
    images, index = sample_images(32), torch.arange(12)
    with pytest.raises(ValueError, match="unknown view weaker"):
        Views(CIFAR, 0)(images, index, ("weaker",), 0)
    with pytest.raises(ValueError, match="uint8"):
        Views(CIFAR, 0)(images.float(), index, ("weak",), 0)
