import numpy as np
import pytest
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.blur import zoom_in

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
