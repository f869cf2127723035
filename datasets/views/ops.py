"""Image operations on a batch in which every sample has its own magnitude.

An operation takes and returns (B, 3, H, W) float32 with whole grey levels 0…255, and agrees with
`torchvision.transforms.v2.functional` on uint8. Between operations a batch is kept as uint8, a quarter of the memory.
An operation may overwrite its input: allocating a batch takes longer than the arithmetic on it.

A sample's result must not depend on its neighbours in the batch. So the arithmetic is of two kinds only: single
correctly rounded operations, and sums and products of whole numbers that fit into the mantissa and so are exact in
any order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from datasets.views.upload import to_device

Operation = Callable[[Tensor, Tensor], Tensor]  # (B, 3, H, W), (B,) -> (B, 3, H, W)

# Constants as tensors: torch wraps a Python number into a new tensor at every call, longer than a small image takes.
_LUMA = tuple(torch.tensor(weight) for weight in (0.2989, 0.587, 0.114))
_HALF = torch.tensor(0.5)
_THREE = torch.tensor(3.0)
_THIRTEENTH = torch.tensor(1 / 13)
_STRETCH = torch.tensor(255.999 / 255)
_CACHE_ELEMENTS = 64 * 3 * 32 * 32  # float32 numbers that an operation takes at once on a CPU: 0.8 MB
_WEIGHT_UNIT = 2.0**16  # 8-bit levels times 16-bit weights add up without rounding in float32's 24-bit mantissa


def _per_sample(values: Tensor) -> Tensor:
    """(B,) -> (B, 1, 1, 1) float32, to broadcast over images."""
    return values.to(torch.float32).view(-1, 1, 1, 1)


def _levels(x: Tensor) -> Tensor:
    """Clip to 0…255 and cut the fraction off, as a cast to uint8 does. In place."""
    return x.clamp_(0, 255).floor_()


def _where(comparison: Callable[..., Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Return 1.0 where the comparison holds, else 0.0; on a CPU several times faster than `torch.where` on a bool tensor."""
    return comparison(a, b, out=torch.empty_like(a))


def at_once(images: Tensor) -> int:
    """Return how many of these images to process at once: on a CPU, few enough to stay in the cache."""
    return max(_CACHE_ELEMENTS // images[0].numel(), 1) if images.device.type == "cpu" else len(images)


# resampling ----------------------------------------------------------------------------------------------------------


def tap_count(length: Tensor, total: Tensor) -> int:
    """Return how many source pixels one pixel of a result needs at most, when `length` of them become `total`."""
    return int((2 * (length.to(torch.float64) / total).clamp(min=1.0)).ceil().max())


def taps(
    start: Tensor, length: Tensor, total: Tensor, offset: Tensor, size: int, mirror: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Return source positions and weights that resize `length` pixels from `start` to `total`, and keep `size` from `offset`.

    All but `size` and `count`, the `tap_count`, are (B,). A triangle filter, widened when shrinking ("antialias"). Where `mirror` is set the result
    runs backwards. Returns (B, size, count) int64 positions and float32 weights, multiples of 2^-16.
    """
    device = start.device
    column = torch.arange(size, device=device)
    column = torch.where(mirror.unsqueeze(1), size - 1 - column, column) + offset.unsqueeze(1)
    scale = length.to(torch.float64) / total
    support = scale.clamp(min=1.0)
    centre = (column + 0.5) * scale.unsqueeze(1)
    first = (centre - support.unsqueeze(1) + 0.5).floor().clamp(min=0)
    position = first.unsqueeze(2) + torch.arange(count, device=device)
    last = (length - 1).view(-1, 1, 1)
    weight = (position + (0.5 - centre).unsqueeze(2)).abs_().div_(support.view(-1, 1, 1)).neg_().add_(1).clamp_(min=0)
    weight.mul_(position <= last)
    weight.mul_(_WEIGHT_UNIT / weight.sum(2, keepdim=True)).round_().mul_(1 / _WEIGHT_UNIT)
    return torch.minimum(position.to(torch.int64), last).add_(start.view(-1, 1, 1)), weight.to(torch.float32)


def as_columns(images: Tensor) -> Tensor:
    """Convert uint8 (N, C, H, W) to float32 (N, C, W, H), contiguous: the form `resample` reads."""
    return images.transpose(2, 3).to(torch.float32, memory_format=torch.contiguous_format)


def _weighted_rows(table: Tensor, position: Tensor, weight: Tensor) -> Tensor:
    """Mix rows position[b] of `table` (B, C, L, M) with weight[b] for every image b -> (B, C, size, M)."""
    batch, channels, rows, width = table.shape
    size, count = position.shape[1:]
    first_row = torch.arange(0, batch * channels * rows, rows, device=table.device)
    bags = (first_row.view(batch, channels, 1, 1) + position.unsqueeze(1)).view(-1, count)
    weights = weight.unsqueeze(1).expand(-1, channels, -1, -1).reshape(-1, count)
    total = F.embedding_bag(bags, table.reshape(-1, width), mode="sum", per_sample_weights=weights)
    return total.add_(_HALF).floor_().view(batch, channels, size, width)


def resample(columns: Tensor, x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> Tensor:
    """Resample separably, first along x, then along y, rounded to whole levels after each as Pillow does.

    columns: (B, C, W, H) from `as_columns`; x, y: `taps` of both axes. Returns (B, C, size, size).
    """
    along_x = _weighted_rows(columns, *x)  # (B, C, size, H)
    return _weighted_rows(along_x.transpose(2, 3).contiguous(), *y)


@functools.lru_cache(maxsize=8)
def tap_table(longest: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the `taps` that resize 1 … longest pixels to `size`: (2·longest, size, K), the second half mirrored."""
    length = torch.arange(1, longest + 1, device=device).repeat(2)
    zero = torch.zeros_like(length)
    mirror = torch.arange(2 * longest, device=device) >= longest
    return taps(zero, length, zero + size, zero, size, mirror, tap_count(length, zero + size))


@functools.lru_cache(maxsize=4)
def crop_matrices(longest: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return every crop of `longest` pixels along y, (longest², size, longest), and x, (2·longest², longest, size).

    The one for `length` pixels from `start` has the number (length − 1)·longest + start, mirrored longest² more.
    """
    position, weight = tap_table(longest, size, device)
    start = torch.arange(longest, device=device).view(1, -1, 1, 1)
    column = (position.unsqueeze(1) + start).clamp(max=longest - 1)  # crops beyond the border are never used
    matrices = torch.zeros(2 * longest, longest, size, longest, device=device)
    matrices.scatter_add_(3, column, weight.unsqueeze(1).expand_as(column))
    # Only x is ever mirrored. Its matrices are the right factor of a product, so they are stored transposed.
    return matrices[:longest].flatten(0, 1), matrices.flatten(0, 1).mT.contiguous()


def crop_by_products(images: Tensor, start: Tensor, length: Tensor, mirror: Tensor, size: int) -> Tensor:
    """Crop and resize small images by two matrix products: the levels of `resample` in about half the time.

    images: (B, C, H, W) uint8; start, length: (B, 2) along y and x; mirror: (B,) bool. Returns (B, C, size, size)
    uint8. The sums are exact: levels of 8 bits times weights of 17 bits fit into float32's mantissa.
    """
    channels, height, width = images.shape[1:]
    longest = max(height, width)
    along_y, along_x = crop_matrices(longest, size, images.device)
    rows, columns = ((length - 1) * longest + start).unbind(1)
    columns = columns + longest * longest * mirror
    result = images.new_empty(len(images), channels, size, size)
    parts = (v.split(at_once(images)) for v in (images, rows, columns, result))
    with torch.autocast(images.device.type, enabled=False):  # bfloat16 has 8 bits of mantissa, too few
        for image, row, column, image_out in zip(*parts, strict=True):
            across = along_x.index_select(0, column)[:, :width]
            x = torch.bmm(image.to(torch.float32).flatten(1, 2), across).add_(_HALF).floor_()
            down = along_y.index_select(0, row.repeat_interleave(channels))[:, :, :height]
            image_out.copy_(torch.bmm(down, x.view(-1, height, size)).add_(_HALF).view_as(image_out).to(torch.int16))
    return result


def crop_one_by_one(images: Tensor, start: Tensor, length: Tensor, mirror: Tensor, out: Tensor) -> Tensor:
    """Crop and resize with torch's 8-bit kernel: (B, 3 or 1, H, W) uint8 -> (B, 3, size, size) whole levels, in `out`.

    start, length: (B, 2) along y and x; mirror: (B,) bool. For large images on a CPU, where the kernel takes far
    longer than a turn of the loop.
    """
    boxes = torch.cat((start, length, mirror.unsqueeze(1)), 1).tolist()
    for image_out, image, (top, left, height, width, is_mirrored) in zip(out, images, boxes, strict=True):
        part = image[None, :, top : top + height, left : left + width]
        patch = F.interpolate(part, size=image_out.shape[1:], mode="bilinear", antialias=True)[0]
        image_out.copy_(patch.flip(2) if is_mirrored else patch)  # one grey channel becomes three
    return out


# colour --------------------------------------------------------------------------------------------------------------


def _luma(x: Tensor) -> Tensor:
    """Return (B, 1, H, W) whole grey levels."""
    red, green, blue = x.chunk(3, dim=1)
    return (red * _LUMA[0]).add_(green * _LUMA[1]).add_(blue * _LUMA[2]).floor_()


def _blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    """Return factor·x + (1 − factor)·other, clipped."""
    return _levels(x.mul_(_per_sample(factor)).add_(other * _per_sample(1 - factor)))


def identity(x: Tensor, _: Tensor) -> Tensor:
    return x


def grayscale(x: Tensor, _: Tensor) -> Tensor:
    return x.copy_(_luma(x))


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    return _levels(x.mul_(_per_sample(factor)))


def saturation(x: Tensor, factor: Tensor) -> Tensor:
    return _blend(x, _luma(x), factor)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    pixels = x.shape[2] * x.shape[3]
    # whole levels add up exactly in float32 as long as 255 times the number of pixels stays below 2^24
    exact = torch.float32 if pixels <= 2**16 else torch.float64
    mean = _luma(x).sum(dim=(1, 2, 3), keepdim=True, dtype=exact).div_(pixels).to(torch.float32)
    return _blend(x, mean, factor)


@functools.cache
def _opposite(device: torch.device) -> Tensor:
    """Return the points opposite red, green and blue on a circle of six sixths, for `hue`."""
    return torch.tensor([-3.0, 1.0, -1.0], device=device).view(1, 3, 1, 1)


def hue(x: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue by `shift` of a full circle, at most a sixth.

    With V the largest and V − C the smallest channel, a channel whose own hue lies d sixths of a circle away is
    V − C·clip(d − 1, 0, 1): so no sector has to be looked up.
    """
    red, green, blue = x.chunk(3, dim=1)
    largest = torch.maximum(torch.maximum(red, green), blue)
    chroma = largest - torch.minimum(torch.minimum(red, green), blue)
    # chroma times the hue in sixths, if blue is the largest, then corrected where green or red is
    angle = (red - green).add_(chroma, alpha=4)
    angle.addcmul_((blue - red).add_(chroma, alpha=2).sub_(angle), _where(torch.eq, largest, green))
    angle.addcmul_((green - blue).sub_(angle), _where(torch.eq, largest, red)).div_(chroma.clamp(min=1))
    # distance to the point opposite red, green, blue; |·| − 3 folds the circle
    torch.add(angle, _per_sample(shift * 6) + _opposite(x.device), out=x).abs_().sub_(_THREE).abs_().clamp_(1, 2)
    # torchvision goes back to 8 bits by cutting off value·255.999, with values in [0, 1]
    chroma.mul_(_STRETCH)
    return torch.sub(largest.mul_(_STRETCH).add_(chroma), x.mul_(chroma), out=x).floor_()


def sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """Blend with a 3×3 blur (weights 1, centre 5); the outermost pixels stay.

    A product with 1/13 rounds as the quotient does: no multiple of 1/13 comes within float32's error of a half.
    """
    if min(x.shape[2:]) <= 2:
        return x
    width, flat = x.shape[3], x.view(-1)  # sums across the end of a row fall on outermost pixels
    down = (flat[: -2 * width] + flat[width:-width]).add_(flat[2 * width :])
    centre = flat[width + 1 : -width - 1]
    change = torch.zeros_like(x)
    blur = torch.add(down[:-2], down[1:-1], out=change.view(-1)[width + 1 : -width - 1]).add_(down[2:])
    blur.add_(centre, alpha=4).mul_(_THIRTEENTH).round_().sub_(centre)
    inner = F.pad(x.new_ones(x.shape[2] - 2, width - 2), (1, 1, 1, 1))
    return _levels(x.add_(change.mul_(_per_sample(1 - factor) * inner)))


def autocontrast(x: Tensor, _: Tensor) -> Tensor:
    """Stretch every channel to the full range; a flat channel stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    flat = low == high
    step = ((high - low) * (1 / 255)).masked_fill_(flat, 1)
    return _levels(x.sub_(low.masked_fill_(flat, 0)).div_(step))


def _counted(cells: Tensor, count: int) -> Tensor:
    """Count each of 0 … count − 1 among the cells. `bincount` makes the host wait for a device twice."""
    if cells.device.type == "cpu":
        return torch.bincount(cells, minlength=count)
    return torch.zeros(count, dtype=torch.int32, device=cells.device).index_add_(0, cells, torch.ones_like(cells))


def equalize(x: Tensor, _: Tensor) -> Tensor:
    """Flatten every channel's histogram by Pillow's rule."""
    planes, pixels = x.shape[0] * x.shape[1], x.shape[2] * x.shape[3]
    first = torch.arange(0, 256 * planes, 256, device=x.device, dtype=torch.int32).unsqueeze(1)
    cells = x.reshape(planes, pixels).to(torch.int32).add_(first).view(-1)
    counts = _counted(cells, 256 * planes).view(planes, 256)
    brightest = counts.gather(1, x.amax((2, 3)).view(planes, 1).to(torch.int64)).to(torch.float32)
    step = (pixels - brightest).div_(255).floor_()
    # quotients of whole numbers far below 2^24 never round up to the next whole number
    before = counts.cumsum(1).sub_(counts).to(torch.float32)
    lookup = before.add_((step / 2).floor_()).div_(step.clamp(min=1)).floor_().clamp_(max=255)
    lookup = torch.where(step == 0, torch.arange(256, device=x.device, dtype=torch.float32), lookup)
    return lookup.view(-1).index_select(0, cells).view_as(x)


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest ⌊bits⌋ bits."""
    step = _per_sample(torch.exp2(8 - bits.floor()))
    return x.div_(step).floor_().mul_(step)


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    above = _where(torch.ge, x, _per_sample(threshold))
    return x.sub_(above, alpha=255).abs_()  # |x − 255| = 255 − x above the threshold, |x| below


def invert(x: Tensor, _: Tensor) -> Tensor:
    return x.neg_().add_(255)


# geometry ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _centred(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return positions of columns (W,) and rows (H, 1) about the centre, and half of width and height (1, 2, 1)."""
    column, row = (torch.arange(side, device=device) + 0.5 * (1 - side) for side in (width, height))
    return column, row.view(-1, 1), torch.tensor([0.5 * width, 0.5 * height], device=device).view(1, 2, 1)


def affine(x: Tensor, matrix: Tensor, fill: float = 0.0) -> Tensor:
    """Apply a nearest-neighbour affine map; `fill` outside.

    matrix: (B, 6) rows (a, b, c, d, e, f): the source of (x, y) is (ax + by + c, dx + ey + f), in pixels about the
    image's centre.
    """
    column, row, half = _centred(*x.shape[2:], x.device)
    # divided by half the side, because grid_sample's coordinates run from -1 to 1; (B, 1, 1) each
    a, b, c, d, e, f = (matrix.to(torch.float32).view(-1, 2, 3) / half).view(-1, 6, 1, 1).unbind(1)
    grid = x.new_empty(x.shape[0], *x.shape[2:], 2)
    torch.add(column * a, row * b + c, out=grid[..., 0])
    torch.add(column * d, row * e + f, out=grid[..., 1])
    if not fill:
        return F.grid_sample(x, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    # zero padding serves any fill, because subtracting it from whole levels is exact
    return F.grid_sample(x - fill, grid, mode="nearest", padding_mode="zeros", align_corners=False).add_(fill)


@dataclass(frozen=True)
class Warp:
    """An operation that is an affine map: a turn by `turn`·magnitude degrees, plus magnitude·`direction`.

    Neighbours of this kind can share one call of `affine`.
    """

    direction: Callable[[int, int], Sequence[float]] = lambda height, width: (0, 0, 0, 0, 0, 0)
    turn: float = 0.0
    fill: float = 0.0

    def __call__(self, x: Tensor, magnitude: Tensor) -> Tensor:
        (numbers,) = _warp_numbers((self,), *x.shape[2:], x.device)
        return affine(x, _warp_matrices(numbers, magnitude), self.fill)


@functools.lru_cache(maxsize=32)
def _warp_numbers(operations: tuple[Operation, ...], height: int, width: int, device: torch.device) -> Tensor:
    """Return (O, 7) float64: turn and direction of each operation, zeros for one that is not a warp."""
    rows = [(o.turn, *o.direction(height, width)) if isinstance(o, Warp) else (0.0,) * 7 for o in operations]
    return torch.tensor(rows, dtype=torch.float64, device=device)


def _warp_matrices(numbers: Tensor, magnitude: Tensor) -> Tensor:
    """Convert (…, 7) and (…) to (…, 6), as `affine` takes them."""
    angle = torch.deg2rad(numbers[..., 0] * magnitude)
    cos, sin, zero = torch.cos(angle), torch.sin(angle), torch.zeros_like(angle)
    return torch.stack((cos, -sin, zero, sin, cos, zero), -1) + numbers[..., 1:] * magnitude.unsqueeze(-1)


# counter-clockwise, in degrees, about the centre
rotate = Warp(turn=1.0)
# by a slope, about the top-left corner
shear_x = Warp(lambda height, width: (0, 1, height / 2, 0, 0, 0))
shear_y = Warp(lambda height, width: (0, 0, 0, 1, 0, width / 2))
# by a fraction of the side, to the left or upwards if positive
translate_x = Warp(lambda height, width: (0, 0, width, 0, 0, 0))
translate_y = Warp(lambda height, width: (0, 0, 0, 0, 0, height))


def shear_x_bicubic(x: Tensor, slope: Tensor, fill: float = 0.0) -> Tensor:
    """Shear like `shear_x`, with the bicubic filter of Pillow's `transform` (a = −1).

    Rows move as wholes, so four taps along the row suffice.
    """
    height, width = x.shape[2:]
    row = torch.arange(height, device=x.device).view(1, -1, 1) + 0.5
    at = torch.arange(width, device=x.device) + 0.5 + row * slope.view(-1, 1, 1)  # (B, H, W), float64
    first = (at - 0.5).floor()
    part = at - 0.5 - first
    result = torch.zeros_like(x, dtype=torch.float64)
    for tap in range(-1, 3):
        distance = (part - tap).abs()
        near = (distance - 2) * distance * distance + 1
        far = ((5 - distance) * distance - 8) * distance + 4
        position = (first + tap).clamp(0, width - 1).to(torch.int64).unsqueeze(1).expand_as(x)
        result += x.gather(3, position) * torch.where(distance <= 1, near, far).unsqueeze(1)
    inside = ((at >= 0) & (at < width)).unsqueeze(1)
    return _levels(torch.where(inside, result + 0.5, fill).to(torch.float32))


def shear_y_bicubic(x: Tensor, slope: Tensor, fill: float = 0.0) -> Tensor:
    return shear_x_bicubic(x.transpose(2, 3).contiguous(), slope, fill).transpose(2, 3).contiguous()


# composition ---------------------------------------------------------------------------------------------------------


def erase(x: Tensor, box: Sequence[Tensor], fill: Sequence[float]) -> Tensor:
    """Paint the box top, left, bottom, right (all included; (B,) each) with `fill`, a level per channel. In place."""
    top, left, bottom, right = (edge.view(-1, 1) for edge in box)
    row = torch.arange(x.shape[2], device=x.device)
    column = torch.arange(x.shape[3], device=x.device)
    rows, columns = (row >= top) & (row <= bottom), (column >= left) & (column <= right)
    hole = rows.to(x.dtype).unsqueeze(2) * columns.to(x.dtype).unsqueeze(1)
    x.mul_((1 - hole).unsqueeze(1))  # arithmetic on whole levels is exact, and faster than a mask
    for channel, level in zip(x.unbind(1), fill, strict=True):
        channel.add_(hole, alpha=level)
    return x


def _groups(operations: Sequence[Operation], counts: Sequence[int], most: int) -> Iterator[tuple[Operation, int]]:
    """Return which operation takes how many of the next samples; adjacent warps with one fill are grouped."""
    work = zip(operations, counts, strict=True)
    for _, run in itertools.groupby(work, key=lambda pair: pair[0].fill if isinstance(pair[0], Warp) else pair[0]):
        same, sizes = zip(*run, strict=True)
        total = sum(sizes)
        pieces = max(round(total / most), 1)  # of equal sizes: a small remainder would cost as many calls
        yield from ((same[0], total * (k + 1) // pieces - total * k // pieces) for k in range(pieces) if total)


def apply_in_rounds(x: Tensor, choice: Tensor, magnitude: Tensor, operations: tuple[Operation, ...]) -> Tensor:
    """Apply operations[choice[b, r]] with magnitude[b, r] to sample b, for each column r in turn. In place.

    x: (B, 3, H, W) uint8; choice: (B, R) int64; magnitude: (B, R), both of the host. Each operation copies its samples
    to float32, as many at once as the cache holds, and writes them back as uint8.
    """
    rounds = choice.shape[1]
    offsets = torch.arange(rounds) * len(operations)
    counts = torch.bincount((choice + offsets).view(-1), minlength=rounds * len(operations)).view(rounds, -1).tolist()
    orders = torch.argsort(choice, dim=0, stable=True)
    choice, magnitude = choice.gather(0, orders), magnitude.gather(0, orders)
    matrix = _warp_matrices(_warp_numbers(operations, *x.shape[2:], choice.device)[choice], magnitude)
    if x.device.type != "cpu":
        groups = [list(_groups(operations, counts[r], len(x))) for r in range(rounds)]
        return _apply_on_device(x, groups, orders, magnitude, matrix)
    store = _words(x)
    for r in range(rounds):
        group, sizes = zip(*_groups(operations, counts[r], at_once(x)), strict=True)
        settings = (v[:, r].split(sizes) for v in (orders, magnitude, matrix))
        for operation, rows, m, matrices in zip(group, *settings, strict=True):
            if operation is not identity:
                part = x.index_select(0, rows).to(torch.float32)
                is_warp = isinstance(operation, Warp)
                part = affine(part, matrices, operation.fill) if is_warp else operation(part, m)
                store.index_copy_(0, rows, _words(as_bytes(part)))
    return x


def _apply_on_device(
    x: Tensor, groups: Sequence[Sequence[tuple[Operation, int]]], orders: Tensor, magnitude: Tensor, matrix: Tensor
) -> Tensor:
    """Apply the rounds with few kernel launches: samples stay sorted by operation from round to round.

    orders, magnitude (B, R) and matrix (B, R, 6) are of the host and sorted; one copy takes them to the device.
    """
    places = orders.argsort(dim=0)  # of each sample in a round's order
    picks = [orders[:, 0], *(places[:, r - 1][orders[:, r]] for r in range(1, orders.shape[1])), places[:, -1]]
    pick, magnitude, matrix = to_device((torch.stack(picks, 1), magnitude, matrix), x.device)
    for r, work in enumerate(groups):
        parts, start = [], 0
        for operation, count in work:
            part = x.index_select(0, pick[start : start + count, r])
            m, matrices = magnitude[start : start + count, r], matrix[start : start + count, r]
            if isinstance(operation, Warp):
                part = affine(part.to(torch.float32), matrices, operation.fill).to(torch.uint8)
            elif operation is not identity:
                part = operation(part.to(torch.float32), m).to(torch.uint8)
            parts.append(part)
            start += count
        x = torch.cat(parts)
    return x.index_select(0, pick[:, -1])


def as_bytes(x: Tensor) -> Tensor:
    """Convert levels to uint8, fractions cut off; via int16, because a CPU's cast to uint8 is not vectorised."""
    return x.to(torch.int16).to(torch.uint8)


def _words(x: Tensor) -> Tensor:
    """View (B, …) uint8 as (B, n) int64 of the same memory, if eight bytes divide it: fewer elements to copy."""
    flat = x.view(len(x), -1)
    return flat if flat.shape[1] % 8 else flat.view(torch.int64)


def apply_one_by_one(x: Tensor, choice: Tensor, magnitude: Tensor, operations: Sequence[Operation]) -> Tensor:
    """Apply the operations like `apply_in_rounds`, image by image on float32 levels: one large image fills the cache."""
    for row, operation_numbers in enumerate(choice.tolist()):
        part = x[row : row + 1]
        for r, pick in enumerate(operation_numbers):
            result = operations[pick](part, magnitude[row : row + 1, r])
            if result is not part:
                part.copy_(result)
    return x
