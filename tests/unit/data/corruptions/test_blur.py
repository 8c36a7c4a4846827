import numpy as np
import pytest
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.blur import smooth
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
