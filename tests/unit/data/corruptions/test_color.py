import colorsys

import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.severity import severity_options


def colors(number):
    """Random colours, greys, and colours with two equal channels, where hue has special cases."""
    rng = np.random.default_rng(0)
    found = rng.integers(0, 256, (number, 3), dtype=np.uint8)
    found[: number // 4, 1] = found[: number // 4, 0]
    found[number // 8 : number // 3, 2] = found[number // 8 : number // 3, 1]
    found[-3:] = [[0, 0, 0], [255, 255, 255], [255, 0, 0]]
    return found


def truncated(rgb):
    return [int(min(max(v, 0.0), 1.0) * 255 + 1e-9) for v in rgb]


@pytest.mark.parametrize("severity", [1, 5])
def test_brightness_adds_to_the_value(severity):
    pixels = colors(512)
    ours = corrupt(pixels.reshape(1, 16, 32, 3), "brightness", severity=severity).reshape(-1, 3)
    add = severity_options("brightness", severity, "cifar")["add"]
    for pixel, got in zip(pixels, ours, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(pixel / 255.0))
        assert np.abs(got.astype(int) - truncated(colorsys.hsv_to_rgb(h, s, min(1.0, v + add)))).max() <= 1


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_saturate_scales_and_shifts_the_saturation(severity):
    pixels = colors(512)
    ours = corrupt(pixels.reshape(1, 16, 32, 3), "saturate", severity=severity).reshape(-1, 3)
    options = severity_options("saturate", severity, "cifar")
    for pixel, got in zip(pixels, ours, strict=True):
        h, s, v = colorsys.rgb_to_hsv(*(pixel / 255.0))
        s = min(1.0, s * options["factor"] + options["add"])
        assert np.abs(got.astype(int) - truncated(colorsys.hsv_to_rgb(h, s, v))).max() <= 1


@pytest.mark.parametrize("name", ["brightness", "saturate"])
def test_hsv_equals_that_of_scikit_image_to_the_bit(name):
    color = pytest.importorskip("skimage.color")
    pixels = colors(4096).reshape(4, 32, 32, 3)
    hsv = color.rgb2hsv(pixels / 255.0)
    if name == "brightness":
        hsv[..., 2] = np.clip(hsv[..., 2] + 0.15, 0, 1)
    else:
        hsv[..., 1] = np.clip(hsv[..., 1] * 1.5, 0, 1)
    expected = (np.clip(color.hsv2rgb(hsv), 0, 1) * 255).astype(np.uint8)
    np.testing.assert_array_equal(corrupt(pixels, name, severity=3), expected)


def test_contrast_pulls_towards_the_mean_of_each_channel():
    images = np.random.default_rng(1).integers(0, 256, (3, 20, 30, 3), dtype=np.uint8)
    mean = images.mean((1, 2), keepdims=True)
    for severity, factor in enumerate([0.75, 0.5, 0.4, 0.3, 0.15], 1):
        flat = corrupt(images, "contrast", severity=severity)
        assert np.abs(flat + 0.5 - (mean + factor * (images - mean))).max() < 0.51
