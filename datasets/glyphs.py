"""`glyphs`: 100 characters in 20 groups of five look-alikes, drawn here from the fonts that matplotlib ships.

A set without a download whose classes are confused for a reason: O and Q, é and è, ù and ú. The groups are the
superclasses; `glyphs-h` has the same images, with candidates from inside the group. Images are 32×32 in colour: one
character under a random affine map, in two random colours, blurred and noisy. Letters are not symmetric, so no view of
this set may mirror an image.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from datasets.base import Availability, DataError, Dataset, Source, Split, renamed
from datasets.views.recipes import DIGITS, GLYPHS

if TYPE_CHECKING:
    from PIL import Image, ImageFont

SIDE = 32
GROUP_SIZE = 5
GROUPS: tuple[str, ...] = (
    *("O0QØΘ", "Il1|!", "B8ßR&", "S5$§3", "Z27?¿", "CGÇ€¢", "EFΣΞÉ", "LŁΓT£", "VYWΨX", "MNHÑИ"),
    *("AΛΔ4Å", "DPÐÞ¶", "aàâäå", "eéèêë", "óòôöõ", "nhñηm", "uùúüµ", "gq9yγ", "6bδσ∂", "ft†‡+"),
)
FAMILIES: dict[str, tuple[str, ...]] = {
    "sans": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    "mono": ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    "serif": ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
    "stix": ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
}
# Families in which two characters of a group cannot be told apart: sans draws I, l and | as bare strokes, and STIX
# gives l and 1 the same serifs.
LEFT_OUT: dict[str, tuple[str, ...]] = {"Il1|!": ("sans", "stix")}

# Tuned once so that a small network reaches 60–85 % from clean labels; to change one is to make another dataset.
MAX_ROTATION = 10.0  # degrees to either side
MAX_SHEAR = 0.12
MAX_LOG_ZOOM = 0.12  # sizes from 0.89 to 1.13
MAX_LOG_STRETCH = 0.08
MAX_SHIFT = 2.0  # pixels
MIN_CONTRAST = 0.6  # of lightness, where black to white is 1
MAX_BLUR = 1.9  # standard deviation in pixels; the mean is a third of it
MAX_NOISE = 0.28  # standard deviation, where black to white is 1; the mean is a third of it

# Drawn at twice the final size and halved after the affine map, so that thin strokes are averaged rather than lost.
SUPERSAMPLE = 2
EM = 26 * SUPERSAMPLE  # pixels per em; a capital letter is about 19 pixels high in the image
CANVAS = 48 * SUPERSAMPLE
CHUNK = 1000  # images composed at a time, to bound memory
TRAIN_STREAM, TEST_STREAM = 0, 1


def load(
    root: Path,
    seed: int = 0,
    *,
    train: int = 10_000,
    test: int = 2_000,
    classes: int = 100,
    drawing: int = 0,
    variation: float = 1.0,
    side: int = SIDE,
    alike: int = GROUP_SIZE,
) -> Dataset:
    """Draw the set. Smaller settings keep the first groups and the first images.

    Neither the data folder nor the seed of a run has a say: `drawing` alone, a seed of its own, gives other images.
    `alike` is the number of look-alikes taken from each group. `variation` below 1 shrinks every distortion and the
    number of faces by that factor, `side=16` halves the images. All three make a set that a short training can learn.
    """
    import torch

    if not 1 <= alike <= GROUP_SIZE:
        raise DataError(f"glyphs: alike={alike} is not possible; a group has {GROUP_SIZE} look-alikes.")
    if classes % alike or not 0 < classes <= len(GROUPS) * alike:
        raise DataError(
            f"glyphs: classes={classes} is not possible; take a multiple of {alike} up to {len(GROUPS) * alike}, since "
            f"look-alikes come in groups of {alike}."
        )
    if min(train, test) < classes:
        raise DataError(f"glyphs: train={train} and test={test} must be at least {classes}, one image per class.")
    if drawing < 0:
        raise DataError(f"glyphs: drawing={drawing} must not be negative.")
    if not 0 < variation <= 1 or side not in (SIDE, SIDE // 2):
        raise DataError(f"glyphs: variation must be in (0, 1] and side {SIDE} or {SIDE // 2}.")
    splits = []
    for count, stream in ((train, TRAIN_STREAM), (test, TEST_STREAM)):
        labels = np.arange(count) % classes
        characters = labels // alike * GROUP_SIZE + labels % alike  # places in the full list of 100
        images = torch.from_numpy(halved(render(characters, drawing, stream, variation), SIDE // side))
        splits.append(Split(images, torch.from_numpy(labels)))
    return Dataset(
        name="glyphs",
        num_classes=classes,
        class_names=tuple("".join(group[:alike] for group in GROUPS)[:classes]),
        train=splits[0],
        test=splits[1],
        recipe=GLYPHS if side == SIDE else DIGITS,
        superclass=torch.arange(classes) // alike,
        backbone="small-cnn",
    )


def find(root: Path) -> Availability:
    """Whether the fonts are there; the data folder plays no part."""
    missing = [f"{face}.ttf" for faces in FAMILIES.values() for face in faces if not _path(face).is_file()]
    if missing:
        return Availability("incomplete", f"fonts missing: {', '.join(missing)}", "reinstall matplotlib, it ships them")
    return Availability("found", "drawn from matplotlib's fonts", "")


SOURCES = (
    Source("glyphs", "Glyphs", "Embedded", 10_000, 2_000, 100, load, find),
    Source("glyphs-h", "Glyphs-H", "Embedded", 10_000, 2_000, 100, renamed(load, "glyphs-h"), find),
)


def faces_of(group: str) -> tuple[str, ...]:
    """The font faces in which all five characters of a group can be told apart."""
    left_out = LEFT_OUT.get(group, ())
    return tuple(face for family, faces in FAMILIES.items() if family not in left_out for face in faces)


def _path(face: str) -> Path:
    import matplotlib

    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"


def _font(face: str) -> ImageFont.FreeTypeFont:
    """Basic layout is named because Pillow's other one depends on a library that may or may not be installed.

    Pillow is handed the bytes: given a path that does not exist, it would take a namesake from the system's fonts.
    """
    from PIL import ImageFont

    path = _path(face)
    try:
        return ImageFont.truetype(io.BytesIO(path.read_bytes()), EM, layout_engine=ImageFont.Layout.BASIC)
    except OSError as error:
        raise DataError(
            f"glyphs: the font {path.name} is missing or unreadable in {path.parent}; reinstall matplotlib, "
            "which ships it."
        ) from error


def stencil(character: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    """One character in white on black, centred, at twice the size it has in an image."""
    from PIL import Image, ImageDraw

    left, top, right, bottom = font.getbbox(character)
    image = Image.new("L", (CANVAS, CANVAS))
    corner = (round((CANVAS - left - right) / 2), round((CANVAS - top - bottom) / 2))
    ImageDraw.Draw(image).text(corner, character, fill=255, font=font)
    return image


def stencils(group: str) -> list[list[Image.Image]]:
    """For each character of a group, its stencil in every face of the group."""
    fonts = [_font(face) for face in faces_of(group)]
    return [[stencil(character, font) for font in fonts] for character in group]


def halved(images: np.ndarray, factor: int) -> np.ndarray:
    """Images (N, 3, H, W) uint8 averaged over squares of `factor` pixels."""
    if factor == 1:
        return images
    count, channels, height, width = images.shape
    squares = images.reshape(count, channels, height // factor, factor, width // factor, factor)
    return (squares.astype(np.float32).mean((3, 5)) + 0.5).astype(np.uint8)


def render(labels: np.ndarray, drawing: int, stream: int, variation: float = 1.0) -> np.ndarray:
    """Images (N, 3, 32, 32) uint8 of the given classes (N,).

    Image i depends on (drawing, stream, i, its class) alone, so that a smaller set is the beginning of a larger one.
    """
    shape_rng, noise_rng = (np.random.Generator(np.random.PCG64([drawing, stream, part])) for part in range(2))
    draws = shape_rng.random((len(labels), 15))
    alpha = _warped_stencils(labels, variation * draws[:, 0], _inverse_affine(draws[:, 1:7], variation))
    images = np.empty((len(labels), 3, SIDE, SIDE), dtype=np.uint8)
    for start in range(0, len(labels), CHUNK):
        rows = slice(start, start + CHUNK)
        images[rows] = _compose(alpha[rows], draws[rows, 7:], noise_rng, variation)
    return images


def _warped_stencils(labels: np.ndarray, choice: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """(N, 32, 32) uint8: how far each pixel is covered; `choice` (N,) in [0, 1) picks the face."""
    from PIL import Image

    groups = GROUPS[: int(labels.max()) // GROUP_SIZE + 1]
    bank = [faces for group in groups for faces in stencils(group)]
    size = (SIDE * SUPERSAMPLE, SIDE * SUPERSAMPLE)
    alpha = np.empty((len(labels), SIDE, SIDE), dtype=np.uint8)
    # A loop over images, because Pillow's warp takes one at a time; it runs once per process.
    for i, (label, part, matrix) in enumerate(zip(labels.tolist(), choice.tolist(), matrices.tolist(), strict=True)):
        faces = bank[label]
        picked = faces[int(part * len(faces))]
        warped = picked.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)
        alpha[i] = np.asarray(warped.reduce(SUPERSAMPLE))
    return alpha


def _inverse_affine(draws: np.ndarray, variation: float) -> np.ndarray:
    """(N, 6) maps from image to stencil pixels, as Pillow wants them, from (N, 6) uniform draws."""
    signed = variation * (2 * draws - 1)
    angle = np.deg2rad(MAX_ROTATION) * signed[:, 0]
    shear = MAX_SHEAR * signed[:, 1]
    zoom, stretch = np.exp(MAX_LOG_ZOOM * signed[:, 2]), np.exp(MAX_LOG_STRETCH * signed[:, 3])
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = cos / (zoom * stretch), (sin + shear * cos) / (zoom * stretch)
    d, e = -sin * stretch / zoom, (cos - shear * sin) * stretch / zoom
    x, y = (SUPERSAMPLE * (SIDE / 2 + MAX_SHIFT * signed[:, 4:6])).T
    centre = CANVAS / 2
    return np.stack([a, b, centre - a * x - b * y, d, e, centre - d * x - e * y], axis=1)


def _compose(alpha: np.ndarray, draws: np.ndarray, noise_rng: np.random.Generator, variation: float) -> np.ndarray:
    """Blur, colours and noise: (B, 32, 32) coverage and (B, 8) uniform draws give (B, 3, 32, 32) uint8."""
    ink, paper = (colour.astype(np.float32)[:, :, None, None] for colour in _colours(draws[:, :3], draws[:, 3:6]))
    # Squared draws: most images are clean enough to learn from in a short run, a few are hard for any network.
    blur, level = variation * MAX_BLUR * draws[:, 6] ** 2, variation * MAX_NOISE * draws[:, 7] ** 2
    soft = _blur(alpha.astype(np.float32) / 255, blur)[:, None]
    noise = noise_rng.standard_normal((len(alpha), 3, SIDE, SIDE), dtype=np.float32)
    image = paper + (ink - paper) * soft + noise * level.astype(np.float32)[:, None, None, None]
    return (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)


def _colours(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ink and paper (B, 3): two colours per image, the ink darker, moved apart to a contrast of MIN_CONTRAST or more.

    Always dark on light: with both polarities a small network spends its minute on contrast rather than on letters.
    """
    weights = np.array([0.299, 0.587, 0.114])  # of lightness (ITU-R BT.601)
    swap = (first @ weights > second @ weights)[:, None]
    ink, paper = np.where(swap, second, first), np.where(swap, first, second)
    dark, light = ink @ weights, paper @ weights
    reach = np.maximum(light - dark, MIN_CONTRAST) / 2
    middle = np.clip((light + dark) / 2, reach, 1 - reach)
    return _with_lightness(ink, dark, middle - reach), _with_lightness(paper, light, middle + reach)


def _with_lightness(colour: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Colours (B, 3) scaled towards black or white from one lightness (B,) to another; never outside the cube."""
    darker = (new / np.maximum(old, 1e-9))[:, None] * colour
    lighter = 1 - ((1 - new) / np.maximum(1 - old, 1e-9))[:, None] * (1 - colour)
    return np.where((new < old)[:, None], darker, lighter)


def _blur(alpha: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Gaussian blur of each image (B, 32, 32) with its own width (B,) in pixels."""
    reach = 3
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / np.maximum(sigma, 1e-3)[:, None]) ** 2)
    kernel = (kernel / kernel.sum(axis=1, keepdims=True)).astype(np.float32)
    for _ in range(2):  # along the rows, then, transposed, along the columns
        padded = np.pad(alpha, [(0, 0), (0, 0), (reach, reach)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, SIDE, axis=2)  # (B, 32, 7, 32)
        alpha = np.einsum("bk,bhkw->bwh", kernel, windows)
    return alpha
