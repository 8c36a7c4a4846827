"""Digit images with random colors: printed digits in many fonts, and handwritten ones repainted in colored ink."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from asrnorm.data.synthetic.sources import DIGIT_FONTS, SIZE, load_font

_SUPERSAMPLING = 2
_CHUNK = 1024  # images composed at once: bounds the memory, 25 MB per array
_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, what Pillow's "L" uses
_COLOR_DRAWS = 64


@dataclass(frozen=True)
class RenderStyle:
    """Ranges of the random variations of rendered digits; lengths in pixels of the 32x32 image."""

    height: tuple[float, float] = (18.0, 24.0)  # least and largest
    aspect: float = 0.2  # digits are up to this fraction wider or narrower
    rotation: float = 10.0  # largest, in degrees, either way
    shear: float = 0.15  # largest slant added to that of the font
    shift: float = 1.5  # largest distance from the center, along each axis
    boldness: float = 0.5  # largest thickening of the strokes
    neighbor_chance: float = 0.4  # probability of another digit at each side
    contrast: float = 90.0  # least difference in brightness between stroke and background, of 255
    light_share: float = 0.5  # probability that the stroke is lighter than the background
    gradient: float = 40.0  # largest change of each background channel from the center to an edge
    blur: float = 1.0  # largest standard deviation
    noise: float = 6.0  # largest standard deviation


def render_digits(labels: NDArray[np.integer], style: RenderStyle, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Render an image for each label 0 to 9, the labelled digit in the center, as `(n, 32, 32, 3)`."""
    images = np.empty((len(labels), SIZE, SIZE, 3), np.uint8)
    for start in range(0, len(labels), _CHUNK):
        chunk = labels[start : start + _CHUNK]
        strokes = np.stack([_draw_stroke(int(label), style, generator) for label in chunk])
        images[start : start + _CHUNK] = _compose(strokes, style, generator)
    return images


def blur(images_nhwc: NDArray[np.float64], sigmas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Blur each image by its own standard deviation; weights at the edges are normalized to one."""
    size = images_nhwc.shape[1]
    distance = np.subtract.outer(np.arange(size), np.arange(size))
    weights_nij = np.exp(-0.5 * (distance / np.maximum(sigmas, 1e-3)[:, None, None]) ** 2)
    weights_nij /= weights_nij.sum(2, keepdims=True)
    images_nchw = images_nhwc.transpose(0, 3, 1, 2)
    blurred = weights_nij[:, None] @ images_nchw @ weights_nij[:, None].transpose(0, 1, 3, 2)
    return blurred.transpose(0, 2, 3, 1)


def _draw_stroke(label: int, style: RenderStyle, generator: np.random.Generator) -> NDArray[np.float64]:
    """Return the coverage, 0 to 1, of a digit and its neighbors on the 32x32 pixels."""
    name = DIGIT_FONTS[generator.integers(len(DIGIT_FONTS))]
    height = generator.uniform(*style.height) * _SUPERSAMPLING
    font = load_font(name, round(height / _digit_height(name)))
    bold = generator.uniform(0, style.boldness) * _SUPERSAMPLING
    has_left, has_right = generator.random(2) < style.neighbor_chance
    left, right = (str(digit) for digit in generator.integers(10, size=2))
    spacing = generator.uniform(0.0, 0.2) * height

    side = 2 * SIZE * _SUPERSAMPLING  # wider than the image, so that a rotation brings neighbors in
    canvas = Image.new("L", (side, side))
    draw = ImageDraw.Draw(canvas)
    x, y = side / 2 - font.getlength(str(label)) / 2, side / 2 + height / 2
    draw.text((x, y), str(label), 255, font, anchor="ls", stroke_width=bold)
    x0, y0, x1, y1 = canvas.getbbox() or (0, 0, side, side)
    middle = np.array([x0 + x1, y0 + y1]) / 2  # of the ink: slanted digits overhang the font's box
    if has_left:
        draw.text((x - spacing - font.getlength(left), y), left, 255, font, anchor="ls", stroke_width=bold)
    if has_right:
        draw.text((x + font.getlength(str(label)) + spacing, y), right, 255, font, anchor="ls", stroke_width=bold)
    warp = _warp(middle, side / 4, style, generator)
    window = canvas.transform((side // 2, side // 2), Image.Transform.AFFINE, warp, Image.Resampling.BILINEAR)
    return np.asarray(window.reduce(_SUPERSAMPLING), np.float64) / 255


def _warp(
    middle: NDArray[np.float64], center: float, style: RenderStyle, generator: np.random.Generator
) -> tuple[float, ...]:
    """Return Pillow's coefficients from window to canvas; the canvas's `middle` lands near the window's `center`."""
    angle = np.deg2rad(generator.uniform(-style.rotation, style.rotation))
    shear = generator.uniform(-style.shear, style.shear)
    aspect = generator.uniform(1 - style.aspect, 1 + style.aspect)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = np.array([[1 / aspect, shear], [0.0, 1.0]]) @ turn
    target = center + generator.uniform(-style.shift, style.shift, 2) * _SUPERSAMPLING
    return tuple(np.column_stack([matrix, middle - matrix @ target]).ravel().tolist())


def _compose(strokes_nhw: NDArray[np.float64], style: RenderStyle, generator: np.random.Generator) -> NDArray[np.uint8]:
    count = len(strokes_nhw)
    foreground, background = sample_color_pairs(count, style.contrast, style.light_share, generator)
    slope = generator.uniform(-style.gradient, style.gradient, (count, 3))
    angle = generator.uniform(0, 2 * np.pi, (count, 1, 1))
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    along = (np.cos(angle) * x + np.sin(angle) * y)[..., None]
    ground = np.clip(background[:, None, None] + along * slope[:, None, None], 0, 255)
    images = ground + strokes_nhw[..., None] * (foreground[:, None, None] - ground)
    images = blur(images, generator.uniform(0, style.blur, count))
    images += generator.standard_normal(images.shape) * generator.uniform(0, style.noise, (count, 1, 1, 1))
    return np.clip(np.rint(images), 0, 255).astype(np.uint8)


def _digit_height(name: str) -> float:
    """Return the height of an 8 at font size one; old-style figures have it at full height too."""
    reference = 100
    _, top, _, bottom = load_font(name, reference).getbbox("8", anchor="ls")
    return (bottom - top) / reference


def recolor_strokes(
    digits_nhw: NDArray[np.uint8], generator: np.random.Generator, *, contrast: float, light_share: float
) -> NDArray[np.uint8]:
    """Repaint white-on-black digits with a colored stroke on a colored ground, by `sample_color_pairs`."""
    strokes, grounds = sample_color_pairs(len(digits_nhw), contrast, light_share, generator)
    coverage = digits_nhw[..., None] / 255
    painted = grounds[:, None, None] + coverage * (strokes - grounds)[:, None, None]
    return np.rint(painted).astype(np.uint8)


def luma(colors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the brightness, 0 to 255, of RGB colors along the last axis."""
    return colors @ _LUMA


def sample_color_pairs(
    count: int, contrast: float, light_share: float, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw stroke and ground colors, `(count, 3)` each, uniform over all pairs that differ in brightness by `contrast`.

    The stroke is the lighter one with probability `light_share`. Values are from 0 to 255, a contrast up to about 150.
    """
    draws = generator.uniform(0, 255, (count, _COLOR_DRAWS, 2, 3))
    difference = luma(draws[:, :, 0]) - luma(draws[:, :, 1])
    # The first draw that suffices, or the best of the 64.
    suffices = np.abs(difference) >= contrast
    best = np.where(suffices.any(1), suffices.argmax(1), np.abs(difference).argmax(1))
    pairs, first_is_lighter = draws[np.arange(count), best], difference[np.arange(count), best] > 0
    swap = first_is_lighter != (generator.random(count) < light_share)
    pairs[swap] = pairs[swap][:, ::-1]
    return pairs[:, 0], pairs[:, 1]
