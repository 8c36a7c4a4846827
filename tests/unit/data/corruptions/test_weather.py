import numpy as np
import pytest
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.blur import smear
from asrnorm.data.corruptions.severity import severity_options
from asrnorm.data.corruptions.weather import plasma

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


def plain_plasma(noise, side, decay):
    """Diamond-square point by point: centres of squares, then of diamonds, coarse to fine, wrapped at the borders."""
    height = {(0, 0): 0.0}
    noise = iter(noise)
    step, wibble = side, 100.0

    def put(row, column, neighbors):
        mean = sum(height[(row + dr) % side, (column + dc) % side] for dr, dc in neighbors) / 4
        height[row, column] = mean + wibble * wibble * next(noise)

    while step >= 2:
        half = step // 2
        square = [(-half, -half), (-half, half), (half, -half), (half, half)]
        diamond = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for start_row, start_column, neighbors in ((half, half, square), (0, half, diamond), (half, 0, diamond)):
            for row in range(start_row, side, step):
                for column in range(start_column, side, step):
                    put(row, column, neighbors)
        step, wibble = half, wibble / decay
    values = np.array([[height[row, column] for column in range(side)] for row in range(side)])
    return (values - values.min()) / (values.max() - values.min())


@pytest.mark.parametrize(("side", "decay"), [(2, 3.0), (8, 2.0), (32, 1.75)])
def test_plasma_equals_filling_it_point_by_point(side, decay):
    maps = plasma(Streams(5, "fog", 1, range(3)), side, decay)
    noise = Streams(5, "fog", 1, range(3)).uniform(side * side, low=-1.0, high=1.0)
    for ours, drawn in zip(maps, noise, strict=True):
        np.testing.assert_allclose(ours, plain_plasma(drawn, side, decay), atol=1e-9)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_fog_adds_plasma_and_scales_back_to_the_maximum(severity):
    density, decay = severity_options("fog", severity, "cifar").values()
    maps = plasma(Streams(0, "fog", severity, range(4)), 32, decay)
    for image, haze, got in zip(IMAGES / 255.0, maps, corrupt(IMAGES, "fog", severity=severity), strict=True):
        expected = (image + density * haze[..., None]) * image.max() / (image.max() + density)
        np.testing.assert_array_equal(got, (expected * 255).astype(np.uint8))


def test_fog_on_black_is_black():
    assert not corrupt(np.zeros((1, 32, 32, 3), np.uint8), "fog").any()


def plain_snow(image, noise, angle, options):
    size = len(image)
    flakes = options["mean"] + options["sd"] * noise
    kept = int(np.ceil(size / options["zoom"]))
    start = (size - kept) // 2
    flakes = ndimage.zoom(flakes[start : start + kept, start : start + kept], options["zoom"], order=1)
    trim = (len(flakes) - size) // 2
    flakes = flakes[trim : trim + size, trim : trim + size]
    flakes[flakes < options["threshold"]] = 0
    flakes = smear((np.clip(flakes, 0, 1) * 255).astype(np.uint8), options["radius"], options["sigma"], angle) / 255.0
    white = np.maximum(image, ((image @ [0.299, 0.587, 0.114]) * 1.5 + 0.5)[..., None])
    mixed = options["keep"] * image + (1 - options["keep"]) * white
    return np.clip(mixed + flakes[..., None] + np.rot90(flakes, 2)[..., None], 0, 1) * 255


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_snow_equals_the_plain_steps(severity):
    streams = Streams(0, "snow", severity, range(4))
    noise, angles = streams.normal(32, 32), streams.uniform(low=-135.0, high=-45.0)
    options = severity_options("snow", severity, "cifar")
    for image, layer, angle, got in zip(
        IMAGES / 255.0, noise, angles, corrupt(IMAGES, "snow", severity=severity), strict=True
    ):
        expected = plain_snow(image, layer, angle, options)
        assert np.abs(got + 0.5 - expected).max() < 0.51  # truncation, and float32 in ours


def test_snow_is_white_and_the_same_turned_around():
    black = np.zeros((3, 32, 32, 3), np.uint8)
    snowy = corrupt(black, "snow", severity=5)
    assert (snowy[..., 0] == snowy[..., 1]).all()
    np.testing.assert_array_equal(snowy, snowy[:, ::-1, ::-1])
    assert snowy.mean() > 20
