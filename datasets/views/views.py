"""Augmented views of a batch of images, on the images' device; random decisions are made on the host.

A view is a function of (seed, epoch, index, name) and the image: the same image in another batch, another order or
a resumed run gets the same view. All samples of a batch are worked on at once, each with its own draws; see
`ops.py` for how that is kept exact and `counter.py` for the draws.

weak     crop and resize, flip, colour jitter (p = 0.8), grey (p = 0.2): SimCLR's, as PiCO and CEL use it. With the
         recipe "crop-flip" a flip and a crop shifted by up to an eighth of the side (reflected borders), or where the
         test transform resizes, a crop anywhere in the resized image; with "plain" the test transform
strong   crop and resize, flip, three RandAugment operations with their own magnitudes, one Cutout; with the recipe
         "autoaugment" the view distill
distill  DIRK's view. cifar: flip, shifted crop, Cutout, AutoAugment; imagenet: crop and resize, flip, AutoAugment
plain    the test transform
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from datasets.views import autoaugment, counter, ops
from datasets.views.recipes import RGB, Recipe
from datasets.views.upload import to_device

Taps = tuple[Tensor, Tensor]  # source positions and weights, (B, size, K) each


# Ranges of the released RandAugment; its "magnitude 5" is stored there and never used. The affine ones stand together,
# so that neighbours share one call of `ops.affine`.
RAND_AUGMENT: tuple[tuple[ops.Operation, float, float], ...] = (
    (ops.autocontrast, 0, 0),
    (ops.brightness, 0.05, 0.95),
    (ops.saturation, 0.05, 0.95),
    (ops.contrast, 0.05, 0.95),
    (ops.equalize, 0, 0),
    (ops.identity, 0, 0),
    (ops.posterize, 4, 8),
    (ops.sharpness, 0.05, 0.95),
    (ops.solarize, 0, 256),
    (ops.rotate, -30, 30),
    (ops.shear_x, -0.3, 0.3),
    (ops.shear_y, -0.3, 0.3),
    (ops.translate_x, -0.3, 0.3),
    (ops.translate_y, -0.3, 0.3),
)
RAND_AUGMENT_ROUNDS = 3
CUTOUT_FILL = (125.0, 123.0, 114.0)
CUTOUT_LARGEST = 0.5  # of the width
DISTILL_HOLE = 0.5  # of the side: 16 pixels of CIFAR's 32
DISTILL_PADDING = 4
SHIFT = 1 / 8  # of the side, either way, of the crop of crop-flip: 4 pixels of CIFAR's 32
CROP_TRIES = 10
WEAK_OPERATIONS: tuple[ops.Operation, ...] = (
    ops.brightness,
    ops.contrast,
    ops.saturation,
    ops.hue,
    ops.grayscale,
    ops.identity,
)
_GRAY, _NOTHING = 4, 5
_CPU_ELEMENTS = 3 << 20  # of a view made at once on a CPU: 3 MB as uint8, which the cache holds
_LARGE = 128  # side of a view from which a CPU processes images one by one: the loop then costs little
_SMALL = 32  # side of images and views up to which a CPU keeps all crops as matrices (8 MB)


class Draws:
    """Uniform numbers of one view, handed out column by column, so that no two decisions share one."""

    def __init__(self, uniforms: Tensor) -> None:
        self._uniforms = uniforms  # (B, n)
        self._used = 0

    def take(self, columns: int) -> Tensor:
        """Return the next numbers (B, columns) in [0, 1)."""
        self._used += columns
        if self._used > self._uniforms.shape[1]:
            raise ValueError(f"a view draws {self._used} numbers per image; only {self._uniforms.shape[1]} were made")
        return self._uniforms[:, self._used - columns : self._used]

    def one(self) -> Tensor:
        """Return the next number (B,) in [0, 1)."""
        return self.take(1).squeeze(1)


DRAWS_PER_VIEW = 40


@dataclass(frozen=True)
class Box:
    """A rectangle per image, (B,) int64 each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def draw_crop(draws: Draws, sizes: Tensor, scale: tuple[float, float], ratio: tuple[float, float]) -> Box:
    """Draw RandomResizedCrop's rectangle inside (h, w) = sizes (B, 2): ten tries, then the largest central crop."""
    height, width = sizes.to(torch.float64).unbind(1)
    area = (height * width).unsqueeze(1) * (scale[0] + (scale[1] - scale[0]) * draws.take(CROP_TRIES))
    low, high = math.log(ratio[0]), math.log(ratio[1])
    aspect = torch.exp(low + (high - low) * draws.take(CROP_TRIES))
    widths, heights = torch.sqrt(area * aspect).round(), torch.sqrt(area / aspect).round()
    fits = (widths > 0) & (widths <= width.unsqueeze(1)) & (heights > 0) & (heights <= height.unsqueeze(1))
    first = fits.to(torch.int8).argmax(1, keepdim=True)
    has_fit = fits.any(1)
    central_width = torch.minimum(width, (height * ratio[1]).round())
    central_height = torch.minimum(height, (width / ratio[0]).round())
    w = torch.where(has_fit, widths.gather(1, first).squeeze(1), central_width)
    h = torch.where(has_fit, heights.gather(1, first).squeeze(1), central_height)
    top = torch.where(has_fit, (draws.one() * (height - h + 1)).floor(), ((height - h) / 2).floor())
    left = torch.where(has_fit, (draws.one() * (width - w + 1)).floor(), ((width - w) / 2).floor())
    return Box(*(edge.to(torch.int64) for edge in (top, left, h, w)))


@dataclass(frozen=True)
class Crop:
    """Cut-out of each image along y and x, (B, 2) int64 each, and whether it is mirrored, (B,) bool."""

    start: Tensor
    length: Tensor
    mirror: Tensor

    def __getitem__(self, rows: slice | Tensor) -> Crop:
        return Crop(self.start[rows], self.length[rows], self.mirror[rows])


def draw_jitter(draws: Draws, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Draw (B, 5) indices into WEAK_OPERATIONS and magnitudes: the jitters in a random order, then perhaps grey."""
    happens = draws.one() < recipe.jitter_probability
    orders = torch.tensor(list(itertools.permutations(range(4))), device=happens.device)
    order = orders[(draws.one() * len(orders)).to(torch.int64)]  # (B, 4)
    *factors, hue = recipe.jitter
    low = torch.tensor([*(max(0.0, 1 - f) for f in factors), -hue], dtype=torch.float64, device=happens.device)
    high = torch.tensor([*(1 + f for f in factors), hue], dtype=torch.float64, device=happens.device)
    magnitude = (low + (high - low) * draws.take(4)).gather(1, order)
    choice = torch.where(happens.unsqueeze(1), order, _NOTHING)
    gray = torch.where(draws.one() < recipe.gray, _GRAY, _NOTHING).unsqueeze(1)
    return torch.cat((choice, gray), 1), torch.cat((magnitude, torch.zeros_like(magnitude[:, :1])), 1)


def draw_rand_augment(draws: Draws) -> tuple[Tensor, Tensor]:
    """Draw (B, 3) indices into RAND_AUGMENT, with replacement, and (B, 3) magnitudes."""
    choice = (draws.take(RAND_AUGMENT_ROUNDS) * len(RAND_AUGMENT)).to(torch.int64)
    share = draws.take(RAND_AUGMENT_ROUNDS)
    ranges = torch.tensor([span for _, *span in RAND_AUGMENT], dtype=torch.float64, device=share.device)
    low, high = ranges[choice].unbind(2)
    return choice, low + (high - low) * share


def draw_cutout(draws: Draws, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw top, left, bottom, right (all included) of RandAugment's last square."""
    side = draws.one() * (CUTOUT_LARGEST * size)
    left = (draws.one() * size - side / 2).clamp(min=0).floor()
    top = (draws.one() * size - side / 2).clamp(min=0).floor()
    return top, left, (top + side).clamp(max=size), (left + side).clamp(max=size)


def draw_hole(draws: Draws, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw top, left, bottom, right (all included) of DIRK's Cutout: a square about a pixel, cut at the border."""
    row, column = (draws.take(2) * size).floor().unbind(1)
    half = int(DISTILL_HOLE * size) // 2
    return row - half, column - half, row + half - 1, column + half - 1


class Views:
    """The named views of batches of images.

    A maker draws the decisions of one view for the whole batch and returns the work that follows from them, which is
    done chunk by chunk: on a CPU a few images at a time stay in the cache.
    """

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.recipe = recipe
        self.seed = seed

    def __call__(
        self, images: Tensor, index: Tensor, names: Sequence[str], epoch: int, sizes: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return one normalised float32 batch (B, 3, size, size) per name; a repeated name gives independent draws.

        images: uint8 (B, 3 or 1, H, W). sizes: (B, 2) height and width of each image, if the storage is padded at
        the bottom and the right. index: (B,) rows in the dataset.
        """
        for name in names:
            check_name(name)
        _check(images)
        padded, sizes = sizes is not None, _sizes(images, sizes)
        index = index.cpu()  # decisions are made on the host; on a device each would synchronise
        works = []
        for i, name in enumerate(names):
            if name == "plain" or (name == "weak" and self.recipe.weak == "plain"):
                works.append(self._plain(sizes, padded))
                continue
            stream = f"{name}{tuple(names[:i]).count(name)}"
            draws = Draws(counter.uniforms(self.seed, epoch, stream, index, DRAWS_PER_VIEW))
            works.append(self.makers[name](self, sizes, draws))
        return self._rendered(images, works)

    def test(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Return the test transform: (B, 3, size, size) float32, normalised."""
        _check(images)
        return self._rendered(images, [self._plain(_sizes(images, sizes), sizes is not None)])[0]

    def test_levels(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Return the test transform before it is normalised: (B, 3, size, size) uint8."""
        _check(images)
        levels = self._plain_levels(_sizes(images, sizes), sizes is not None)
        with torch.no_grad():
            return levels(_Source(images, self.recipe.size), slice(None)).to(torch.uint8)

    def normalised(self, levels: Tensor) -> Tensor:
        """Return whole levels as normalised (B, 3, size, size) float32."""
        result = torch.empty(levels.shape, device=levels.device)
        with torch.no_grad():
            self._normalised(levels, result)
        return result

    def _rendered(self, images: Tensor, works: Sequence[Work]) -> tuple[Tensor, ...]:
        samples, size = images.shape[0], self.recipe.size
        step = samples
        if images.device.type == "cpu":
            step = 1 if size >= _LARGE else _CPU_ELEMENTS // (3 * size**2)
        results = tuple(torch.empty(samples, 3, size, size, device=images.device) for _ in works)
        # inference_mode spares autograd's bookkeeping; results made outside it may still be saved for a backward pass
        with torch.inference_mode():
            for start in range(0, samples, max(step, 1)):
                rows = slice(start, start + step)
                source = _Source(images[rows], size)
                for work, result in zip(works, results, strict=True):
                    work(source, rows, result[rows])
        return results

    # one view each ----------------------------------------------------------------------------------------------------

    def _weak(self, sizes: Tensor, draws: Draws) -> Work:
        if self.recipe.weak == "crop-flip":
            return self._crop_flip(sizes, draws)
        crop = self._crop(sizes, draws)
        choice, magnitude = draw_jitter(draws, self.recipe)

        def work(source: _Source, rows: slice, out: Tensor) -> None:
            self._normalised(source.augmented(crop[rows], choice[rows], magnitude[rows], WEAK_OPERATIONS), out)

        return work

    def _crop_flip(self, sizes: Tensor, draws: Draws) -> Work:
        size, flip, place = self.recipe.size, self._flipped(draws), draws.take(2)
        if self.recipe.test_resize is None:
            most = int(SHIFT * size)
            shift = (place * (2 * most + 1)).to(torch.int64) - most

            def work_from_shift(source: _Source, rows: slice, out: Tensor) -> None:
                self._normalised(self._shifted(source, sizes[rows], flip[rows], shift[rows]), out)

            return work_from_shift
        total = self._resized(sizes)
        offset = (place * (total - size + 1)).to(torch.int64)
        zero = torch.zeros_like(total)

        def work(source: _Source, rows: slice, out: Tensor) -> None:
            y, x = source.taps(zero[rows], sizes[rows], total[rows], offset[rows], flip[rows])
            self._normalised(source.resampled(y, x), out)

        return work

    def _strong(self, sizes: Tensor, draws: Draws) -> Work:
        if self.recipe.strong == "autoaugment" and self.recipe.distill != "strong":
            return self._distill(sizes, draws)
        crop = self._crop(sizes, draws)
        choice, magnitude = draw_rand_augment(draws)
        box = draw_cutout(draws, self.recipe.size)
        operations = tuple(operation for operation, *_ in RAND_AUGMENT)

        def work(source: _Source, rows: slice, out: Tensor) -> None:
            levels = source.augmented(crop[rows], choice[rows], magnitude[rows], operations)
            self._normalised(levels, out, [edge[rows] for edge in box])

        return work

    def _distill(self, sizes: Tensor, draws: Draws) -> Work:
        recipe = self.recipe
        if recipe.distill == "strong":
            return self._strong(sizes, draws)
        if recipe.distill == "cifar":
            flip = self._flipped(draws)
            shift = (draws.take(2) * (2 * DISTILL_PADDING + 1)).to(torch.int64) - DISTILL_PADDING
            box = draw_hole(draws, recipe.size)
        else:
            crop = self._crop(sizes, draws)
        table = autoaugment.tables(recipe.distill, recipe.autoaugment, recipe.size, sizes.device)
        choice, magnitude = autoaugment.draw(table, draws.one(), draws.take(2), draws.take(2))

        def work_from_shift(source: _Source, rows: slice, out: Tensor) -> None:
            x = self._shifted(source, sizes[rows], flip[rows], shift[rows])
            x = ops.erase(x, to_device([edge[rows] for edge in box], x.device), (0.0, 0.0, 0.0))
            levels = ops.apply_in_rounds(ops.as_bytes(x), choice[rows], magnitude[rows], table.operations)
            self._normalised(levels, out)

        def work_from_crop(source: _Source, rows: slice, out: Tensor) -> None:
            self._normalised(source.augmented(crop[rows], choice[rows], magnitude[rows], table.operations), out)

        return work_from_shift if recipe.distill == "cifar" else work_from_crop

    def _plain(self, sizes: Tensor, padded: bool) -> Work:
        levels = self._plain_levels(sizes, padded)

        def work(source: _Source, rows: slice, out: Tensor) -> None:
            self._normalised(levels(source, rows), out)

        return work

    def _plain_levels(self, sizes: Tensor, padded: bool) -> Callable[[_Source, slice], Tensor]:
        """Return a function that gives the plain view of a chunk before it is normalised."""
        size = self.recipe.size
        total = self._resized(sizes)
        # halves of the centre crop's offset are rounded to the even number, as in torchvision
        offset = ((total - size) / 2).round().to(torch.int64)
        zero = torch.zeros_like(total)

        def levels(source: _Source, rows: slice) -> Tensor:
            if not padded and self.recipe.test_resize is None and source.images.shape[2:] == (size, size):
                return _three_channels(source.images)  # already of the right size
            no_flip = zero[rows, 0] > 0
            y, x = source.taps(zero[rows], sizes[rows], total[rows], offset[rows], no_flip)
            return source.resampled(y, x)

        return levels

    makers = {"weak": _weak, "strong": _strong, "distill": _distill}  # by name; "plain" draws nothing

    # common steps ----------------------------------------------------------------------------------------------------

    def _resized(self, sizes: Tensor) -> Tensor:
        """Return (B, 2) height and width after the resizing of the test transform."""
        if self.recipe.test_resize is None:
            return torch.full_like(sizes, self.recipe.size)
        return self.recipe.test_resize * sizes // sizes.amin(1, keepdim=True)  # the longer side rounded down

    def _flipped(self, draws: Draws) -> Tensor:
        """Return (B,) bool. The number is drawn even where nothing is flipped, so that all recipes draw alike."""
        return (draws.one() < 0.5) & self.recipe.flip

    def _crop(self, sizes: Tensor, draws: Draws) -> Crop:
        box = draw_crop(draws, sizes, self.recipe.scale, self.recipe.ratio)
        start, length = torch.stack((box.top, box.left), 1), torch.stack((box.height, box.width), 1)
        return Crop(start, length, self._flipped(draws))

    def _shifted(self, source: _Source, sizes: Tensor, flip: Tensor, shift: Tensor) -> Tensor:
        """Flip the whole image half of the time, then shift it by up to 4 pixels with reflected borders."""
        size = self.recipe.size
        zero, total = torch.zeros_like(sizes), torch.full_like(sizes, size)
        where = torch.arange(size, device=shift.device) + shift.unsqueeze(2)  # (B, 2, size)
        # reflection without repeating the border pixel
        where = ((size - 1) - ((size - 1) - where.abs()).abs()).unsqueeze(3)
        taps = source.taps(zero, sizes, total, zero, flip)
        y, x = (
            (position.gather(1, rows.expand_as(position)), weight.gather(1, rows.expand_as(weight)))
            for (position, weight), rows in zip(taps, to_device(where.unbind(1), source.images.device), strict=True)
        )
        return source.resampled(y, x)

    def _normalised(self, x: Tensor, out: Tensor, box: Sequence[Tensor] = ()) -> None:
        """Paint the box over whole levels and normalise them into `out`."""
        factor, offset = _scaling(self.recipe.mean, self.recipe.std, x.device)
        box = to_device(box, x.device) if box else ()
        for part, target, *edges in zip(*(v.split(ops.at_once(x)) for v in (x, out, *box)), strict=True):
            target.copy_(part)
            if edges:
                ops.erase(target, edges, CUTOUT_FILL)
            target.mul_(factor).add_(offset)


NAMES = ("plain", *Views.makers)


def check_name(view: str) -> None:
    if view not in NAMES:
        raise ValueError(f"unknown view {view}: choose from {', '.join(NAMES)}")


@cache
def _scaling(mean: RGB, std: RGB, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return factor and offset that normalise levels."""
    centre, width = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in (mean, std))
    return (1 / (255 * width)).float().to(device), (-centre / width).float().to(device)


def _check(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images must be uint8 (B, 3, H, W) or (B, 1, H, W), not {images.dtype} {tuple(images.shape)}")


def _sizes(images: Tensor, sizes: Tensor | None) -> Tensor:
    """Return (B, 2) int64 height and width; without padding, those of the storage."""
    if sizes is not None:
        return sizes.to("cpu", torch.int64)
    return torch.tensor(images.shape[2:]).expand(images.shape[0], 2)


class _Source:
    """Images of a chunk, for all its views, which are `size` pixels wide and high."""

    def __init__(self, images: Tensor, size: int) -> None:
        self.images, self.size = images, size

    @cached_property
    def columns(self) -> Tensor:
        """Return the images in the form that resampling reads."""
        return ops.as_columns(self.images)

    def augmented(self, crop: Crop, choice: Tensor, magnitude: Tensor, operations: tuple[ops.Operation, ...]) -> Tensor:
        """Return the crops after all rounds of operations: (B, 3, size, size) whole levels, uint8 or float32."""
        if self.size >= _LARGE and self.images.device.type == "cpu":
            crops = torch.empty(self.images.shape[0], 3, self.size, self.size)
            ops.crop_one_by_one(self.images, crop.start, crop.length, crop.mirror, crops)
            return ops.apply_one_by_one(crops, choice, magnitude, operations)
        return ops.apply_in_rounds(self.cropped(crop), choice, magnitude, operations)

    def cropped(self, crop: Crop) -> Tensor:
        """Return the crops, (B, 3, size, size) uint8."""
        if max(self.images.shape[2:]) <= _SMALL and self.size <= _SMALL and self.images.device.type == "cpu":
            crops = ops.crop_by_products(self.images, crop.start, crop.length, crop.mirror, self.size)
            return _three_channels(crops)
        zero = torch.zeros_like(crop.start)
        y, x = self.taps(crop.start, crop.length, zero + self.size, zero, crop.mirror)
        return ops.as_bytes(self.resampled(y, x))

    def taps(self, start: Tensor, length: Tensor, total: Tensor, offset: Tensor, flip: Tensor) -> tuple[Taps, Taps]:
        """Return `ops.taps` along y and x, on the device of the images; all (B, 2), flip (B,) bool for x."""
        mirror = torch.stack((torch.zeros_like(flip), flip), 1)
        flat = [v.T.reshape(-1) for v in (start, length, total, offset, mirror)]
        count = ops.tap_count(flat[1], flat[2])
        starts, lengths, totals, offsets, mirrors = to_device(flat, self.images.device)
        position, weight = ops.taps(starts, lengths, totals, offsets, self.size, mirrors, count)
        (y, x), (weight_y, weight_x) = position.chunk(2), weight.chunk(2)
        return (y, weight_y), (x, weight_x)

    def resampled(self, y: Taps, x: Taps) -> Tensor:
        """Return (B, 3, size, size) whole levels."""
        return _three_channels(ops.resample(self.columns, x, y))


def _three_channels(x: Tensor) -> Tensor:
    """Repeat one grey channel three times."""
    return x.repeat(1, 3, 1, 1) if x.shape[1] == 1 else x


Work = Callable[[_Source, slice, Tensor], None]  # images of a chunk, its rows, where the result goes
