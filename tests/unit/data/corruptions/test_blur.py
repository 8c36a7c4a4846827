import numpy as np
import pytest
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.blur import _origins, smear, smooth, zoom_in
from asrnorm.data.corruptions.severity import severity_options

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 20, 24, 3), dtype=np.uint8)


def test_smoothing_leaves_images_and_channels_apart():
    x = np.zeros((3, 15, 15, 2))
    x[1, 7, 7, 0] = 1
    blurred = smooth(x, 1.0)
    assert not blurred[[0, 2]].any()
    assert not blurred[..., 1].any()
    assert blurred[1, ..., 0].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(blurred[1, 7, 6, 0] / blurred[1, 7, 7, 0], np.exp(-0.5))


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_gaussian_blur_equals_that_of_scikit_image(severity):
    filters = pytest.importorskip("skimage.filters")
    sigma = severity_options("gaussian_blur", severity, "cifar")["sigma"]
    expected = [filters.gaussian(image / 255.0, sigma=sigma, channel_axis=-1) for image in IMAGES]
    expected = (np.clip(expected, 0, 1) * 255).astype(np.uint8)
    np.testing.assert_array_equal(corrupt(IMAGES, "gaussian_blur", severity=severity), expected)


@pytest.mark.parametrize(("preset", "severity"), [("cifar", 4), ("cifar", 5), ("imagenet", 1), ("imagenet", 5)])
def test_defocus_averages_over_a_disk(preset, severity):
    radius = severity_options("defocus_blur", severity, preset)["radius"]
    ticks = np.arange(-12, 13)
    disk = (ticks[:, None] ** 2 + ticks**2 <= radius**2).astype(float)
    images = np.random.default_rng(0).integers(0, 256, (2, 40, 44, 3), dtype=np.uint8)
    expected = ndimage.correlate(images.astype(float), (disk / disk.sum())[None, :, :, None], mode="mirror")
    blurred = corrupt(images, "defocus_blur", severity=severity, preset=preset).astype(float)
    # The softening of the disk's rim moves little; half a level is truncation.
    assert np.abs(blurred + 0.5 - expected).mean() < 4
    assert np.corrcoef(blurred.ravel(), expected.ravel())[0, 1] > 0.97


def test_defocus_leaves_flat_images_flat():
    flat = np.full((1, 32, 32, 3), 77, np.uint8)
    assert np.abs(corrupt(flat, "defocus_blur", severity=5).astype(int) - 77).max() <= 1


ROW, COLUMN = np.arange(6)[:, None], np.arange(8)
PATTERN = ((17 * ROW**2 + 31 * COLUMN + 7 * ROW * COLUMN) % 256).astype(np.uint8)

# What ImageMagick 7.1.2 makes of PATTERN: radius, sigma, angle, result.
IMAGEMAGICK = [
    (6, 1, -30, [
        [16, 47, 78, 109, 140, 171, 199, 217], [26, 61, 96, 131, 166, 201, 233, 109],
        [66, 108, 150, 192, 232, 108, 58, 84], [140, 189, 90, 119, 80, 129, 174, 57],
        [80, 48, 104, 160, 214, 104, 67, 101], [134, 197, 112, 155, 130, 192, 105, 142]]),
    (9, 2.5, 40, [
        [63, 102, 141, 135, 151, 132, 85, 93], [94, 126, 152, 145, 123, 126, 148, 88],
        [109, 92, 135, 133, 181, 104, 64, 77], [114, 168, 147, 133, 89, 139, 168, 112],
        [99, 93, 147, 190, 165, 85, 118, 134], [142, 137, 123, 168, 144, 136, 101, 119]]),
    (14, 12, -100, [
        [0, 6, 23, 48, 76, 107, 138, 169], [1, 8, 25, 50, 79, 110, 142, 157],
        [6, 13, 31, 57, 88, 103, 135, 151], [16, 24, 27, 55, 86, 103, 136, 137],
        [16, 27, 31, 61, 94, 96, 131, 150], [27, 39, 29, 61, 96, 117, 122, 143]]),
]  # fmt: skip


@pytest.mark.parametrize(("radius", "sigma", "angle", "expected"), IMAGEMAGICK)
def test_smearing_equals_imagemagick(radius, sigma, angle, expected):
    np.testing.assert_array_equal(smear(PATTERN, radius, sigma, angle), expected)


def test_channels_are_smeared_alike():
    color = np.stack([PATTERN, PATTERN[::-1], PATTERN[:, ::-1]], axis=-1)
    for channel in range(3):
        np.testing.assert_array_equal(
            smear(color, 6, 2, 17.0)[..., channel], smear(np.ascontiguousarray(color[..., channel]), 6, 2, 17.0)
        )


def test_directions_lie_within_45_degrees_of_the_horizontal():
    """A white dot becomes a line to its left (the kernel looks right), no steeper than the diagonal."""
    dot = np.zeros((200, 32, 32, 3), np.uint8)
    dot[:, 16, 24] = 255
    lines = corrupt(dot, "motion_blur", severity=5)[..., 0] > 0
    down, right = np.nonzero(lines.any(axis=0))
    assert right.max() == 24
    assert (np.abs(down - 16) <= 24 - right + 1).all()  # offsets are whole pixels
    heights = lines[:, :, 20].argmax(axis=1)[lines[:, :, 20].any(axis=1)] - 16
    assert heights.min() <= -2
    assert heights.max() >= 2


def test_motion_blur_leaves_flat_images_as_they_are():
    flat = np.arange(256, dtype=np.uint8).repeat(12).reshape(256, 2, 2, 3)
    np.testing.assert_array_equal(corrupt(flat, "motion_blur", severity=3), flat)


CIFAR_FACTORS = np.arange(1, 1.26, 0.01)


def plain_zoom(image, factor):
    """Middle part, enlarged by scipy, trimmed; a square image with channels."""
    size = len(image)
    kept = int(np.ceil(size / factor))
    start = (size - kept) // 2
    enlarged = ndimage.zoom(image[start : start + kept, start : start + kept], (factor, factor, 1), order=1)
    trim = (len(enlarged) - size) // 2
    return enlarged[trim : trim + size, trim : trim + size]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 2, 5, 31, 32, 49, 64])
def test_zooming_equals_scipy_to_the_bit(size, dtype):
    image = np.random.default_rng(size).random((size, size, 3)).astype(dtype)
    for factor in [*CIFAR_FACTORS, 1.75, 2.25, 2.5, 3, 4.5]:
        ours = zoom_in(image.astype(np.float64), float(factor)).astype(dtype)
        np.testing.assert_array_equal(ours, plain_zoom(image, factor), err_msg=str(factor))


@pytest.mark.parametrize(("severity", "number"), [(1, 7), (2, 12), (3, 16), (4, 21), (5, 26)])
def test_zoom_blur_is_the_mean_of_the_image_and_its_zooms(severity, number):
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    x = (images / 255.0).astype(np.float32)
    blurred = corrupt(images, "zoom_blur", severity=severity)
    for image, got in zip(x, blurred, strict=True):
        total = np.zeros_like(image)
        for factor in CIFAR_FACTORS[:number]:
            total += plain_zoom(image, factor)
        expected = np.clip((image + total) / (number + 1), 0, 1) * 255
        np.testing.assert_array_equal(got, expected.astype(np.uint8))


def test_zooming_treats_both_directions_alike():
    image = np.random.default_rng(0).random((20, 33))
    np.testing.assert_allclose(zoom_in(image, 1.3), zoom_in(np.ascontiguousarray(image.T), 1.3).T, rtol=1e-12)


class Given:
    """Streams that hand out offsets known beforehand."""

    def __init__(self, offsets):
        self.offsets = offsets

    def __len__(self):
        return len(self.offsets)

    def integers(self, low, high, *shape):
        assert self.offsets.shape[1:] == shape
        assert (self.offsets >= low).all()
        assert (self.offsets < high).all()
        return self.offsets


def plain_walk(height, width, reach, offset_down, offset_right):
    """From the last pixel to the first, each takes what its neighbour holds at that moment."""
    held = np.arange(height * width).reshape(height, width)
    for h in range(height - reach, reach, -1):
        for w in range(width - reach, reach, -1):
            position = (h - reach - 1) * (width - 2 * reach) + (w - reach - 1)
            held[h, w] = held[h + offset_down[position], w + offset_right[position]]
    return held.ravel()


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (13, 20), (20, 13)])
def test_following_chains_equals_walking_pixel_by_pixel(height, width, reach):
    number = (height - 2 * reach) * (width - 2 * reach)
    offsets = np.random.default_rng(reach).integers(-reach, reach, (3, 2, number))
    origins = _origins(Given(offsets), height, width, reach)
    for origin, (down, right) in zip(origins, offsets, strict=True):
        np.testing.assert_array_equal(origin, plain_walk(height, width, reach, down, right))


def test_a_quarter_of_the_inner_pixels_stays_with_reach_one():
    origins = _origins(Streams(0, "glass_blur", 1, range(50)), 32, 32, 1)
    stayed = (origins == np.arange(32 * 32)).reshape(50, 32, 32)
    assert stayed[:, 2:32, 2:32].mean() == pytest.approx(0.25, abs=0.01)
    assert stayed[:, :2].all()
    assert stayed[:, :, :2].all()


def test_without_blur_every_value_comes_from_the_image():
    image = np.arange(32 * 32, dtype=np.uint32).view(np.uint8).reshape(1, 32, 32, 4)[..., :3].copy()
    shuffled = corrupt(image, "glass_blur", severity=1, sigma=0.0)
    number = image[..., 0] + 256 * image[..., 1].astype(int)
    got = shuffled[..., 0] + 256 * shuffled[..., 1].astype(int)
    moved = np.unique(number - got)
    assert moved.tolist() == [0, 1, 32, 33]


def test_images_too_small_for_a_walk_are_only_blurred():
    tiny = np.full((1, 2, 2, 3), 9, np.uint8)
    np.testing.assert_array_equal(corrupt(tiny, "glass_blur", severity=1), tiny)
