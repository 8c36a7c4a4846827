import colorsys
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.digital import _sample
from asrnorm.data.corruptions.severity import severity_options

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 48, 3), dtype=np.uint8)
SQUARES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


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


@pytest.mark.parametrize(("severity", "quality"), [(1, 80), (5, 40)])
def test_jpeg_is_a_round_trip_at_its_quality(severity, quality):
    for image, got in zip(IMAGES, corrupt(IMAGES, "jpeg_compression", severity=severity), strict=True):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        np.testing.assert_array_equal(got, np.asarray(Image.open(file)))


def test_pixelate_makes_blocks():
    blocky = corrupt(IMAGES, "pixelate", scale=0.25)
    blocks = blocky.reshape(3, 8, 4, 12, 4, 3)
    assert (blocks == blocks[:, :, :1, :, :1]).all()
    means = IMAGES.reshape(3, 8, 4, 12, 4, 3).mean((2, 4))
    np.testing.assert_allclose(blocks[:, :, 0, :, 0], means, atol=1.01)  # rounded across, then down


def test_sampling_equals_scipy_also_far_beyond_the_border():
    rng = np.random.default_rng(0)
    x = rng.random((2, 9, 13, 3))
    row, column = rng.uniform(-30, 40, (2, 2, 9, 13))
    ours = _sample(x, row, column)
    for image in range(2):
        for channel in range(3):
            expected = ndimage.map_coordinates(
                x[image, ..., channel], [row[image], column[image]], order=1, mode="reflect"
            )
            np.testing.assert_allclose(ours[image, ..., channel], expected, atol=1e-12)


def plain_elastic(image, corners, field, alpha, sigma):
    cv2 = pytest.importorskip("cv2")
    start = np.array([[26, 26], [26, 6], [6, 6]], np.float32)  # 16 plus or minus 10
    matrix = cv2.getAffineTransform(start, start + corners.astype(np.float32))
    moved = cv2.warpAffine(image.astype(np.float32), matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101)
    right, down = (ndimage.gaussian_filter(part, sigma, mode="reflect", truncate=3) * alpha for part in field)
    rows, columns = np.mgrid[:32, :32]
    channels = [
        ndimage.map_coordinates(moved[..., c], [rows + down, columns + right], order=1, mode="reflect")
        for c in range(3)
    ]
    return np.clip(np.stack(channels, -1), 0, 1) * 255


@pytest.mark.parametrize("severity", [2, 3, 4, 5])
def test_elastic_equals_the_plain_steps(severity):
    options = severity_options("elastic_transform", severity, "cifar")
    streams = Streams(0, "elastic_transform", severity, range(3))
    corners = streams.uniform(3, 2, low=-1.0, high=1.0) * options["affine"] * 32
    field = streams.uniform(2, 32, 32, low=-1.0, high=1.0)
    ours = corrupt(SQUARES, "elastic_transform", severity=severity)
    for image, corner, part, got in zip(SQUARES / 255.0, corners, field, ours, strict=True):
        expected = plain_elastic(image, corner, part, options["alpha"] * 32, options["sigma"] * 32)
        assert np.abs(got + 0.5 - expected).max() < 0.51


def test_the_mildest_severity_is_affine_alone():
    ramp = np.broadcast_to(np.arange(0, 128, 4, dtype=np.uint8)[None, None, :, None], (5, 32, 32, 3)).copy()
    moved = corrupt(ramp, "elastic_transform", severity=1)[:, 10:22, 10:22].astype(float)
    curvature = np.diff(moved, n=2, axis=2)
    assert np.abs(curvature).max() <= 2  # a straight ramp stays one, up to truncation
    assert np.abs(moved - ramp[:, 10:22, 10:22]).mean() > 1


def test_no_displacement_gives_the_image_back():
    for alpha in (0.0, 0.1):
        still = corrupt(SQUARES, "elastic_transform", alpha=alpha, sigma=0.2, affine=0.0)
        if alpha == 0:
            assert np.abs(still.astype(int) - SQUARES).max() <= 1
        else:
            assert np.abs(still.astype(int) - SQUARES).max() > 1


def test_an_image_that_is_not_square_moves_about_its_own_centre_by_parts_of_its_shorter_side():
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 64, 3), dtype=np.uint8)
    ours = corrupt(image, "elastic_transform", alpha=0.0, sigma=0.0, affine=0.1)[0]
    shift = Streams(0, "elastic_transform", 3, [0]).uniform(3, 2, low=-1.0, high=1.0)[0] * 0.1 * 32
    start = np.array([[42, 26], [42, 6], [22, 6]], np.float32)  # across and down: (32, 16) plus or minus 10
    matrix = cv2.getAffineTransform(start, start + shift.astype(np.float32))
    pixels = (image[0] / 255.0).astype(np.float32)
    moved = cv2.warpAffine(pixels, matrix, (64, 32), borderMode=cv2.BORDER_REFLECT_101)
    assert np.abs(ours + 0.5 - np.clip(moved, 0, 1) * 255).max() < 0.51


# Moments of the noises, on flat gray where nothing is clipped.
GRAY = 120
FLAT = np.full((40, 32, 32, 3), GRAY, np.uint8)
TRUNCATION = 0.5  # values are cut down to whole grey levels, half a level on average


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_gaussian_noise_has_its_sd_and_no_bias(severity):
    noise = corrupt(FLAT, "gaussian_noise", severity=severity).astype(float) - GRAY
    sd = 255 * severity_options("gaussian_noise", severity, "cifar")["sd"]
    assert noise.mean() == pytest.approx(-TRUNCATION, abs=0.3)
    assert noise.std() == pytest.approx(sd, rel=0.02)
    assert abs(np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]) < 0.02  # each channel its own


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_shot_noise_has_the_variance_of_its_photons(severity):
    noisy = corrupt(FLAT, "shot_noise", severity=severity).astype(float)
    photons = severity_options("shot_noise", severity, "cifar")["photons"]
    assert noisy.mean() == pytest.approx(GRAY - TRUNCATION, abs=0.5)
    assert noisy.var() == pytest.approx(GRAY * 255 / photons, rel=0.03)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_impulse_noise_is_half_salt_half_pepper(severity):
    noisy = corrupt(FLAT, "impulse_noise", severity=severity)
    amount = severity_options("impulse_noise", severity, "cifar")["amount"]
    assert set(np.unique(noisy)) == {0, GRAY, 255}
    assert (noisy == 255).mean() == pytest.approx(amount / 2, rel=0.1)
    assert (noisy == 0).mean() == pytest.approx(amount / 2, rel=0.1)


@pytest.mark.parametrize("gray", [40, 120])
def test_speckle_noise_grows_with_the_value(gray):
    noisy = corrupt(np.full_like(FLAT, gray), "speckle_noise", severity=3).astype(float)
    assert noisy.mean() == pytest.approx(gray - TRUNCATION, abs=0.2)
    assert noisy.std() == pytest.approx(0.12 * gray, rel=0.03)


def test_black_stays_black_under_shot_and_speckle_noise():
    black = np.zeros_like(FLAT[:2])
    for name in ("shot_noise", "speckle_noise"):
        assert not corrupt(black, name, severity=5).any()
