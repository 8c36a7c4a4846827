import numpy as np
import pytest
from scipy import ndimage

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.digital import _sample
from asrnorm.data.corruptions.severity import severity_options

cv2 = pytest.importorskip("cv2")
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


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
    ours = corrupt(IMAGES, "elastic_transform", severity=severity)
    for image, corner, part, got in zip(IMAGES / 255.0, corners, field, ours, strict=True):
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
        still = corrupt(IMAGES, "elastic_transform", alpha=alpha, sigma=0.2, affine=0.0)
        if alpha == 0:
            assert np.abs(still.astype(int) - IMAGES).max() <= 1
        else:
            assert np.abs(still.astype(int) - IMAGES).max() > 1


def test_an_image_that_is_not_square_moves_about_its_own_centre_by_parts_of_its_shorter_side():
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 64, 3), dtype=np.uint8)
    ours = corrupt(image, "elastic_transform", alpha=0.0, sigma=0.0, affine=0.1)[0]
    shift = Streams(0, "elastic_transform", 3, [0]).uniform(3, 2, low=-1.0, high=1.0)[0] * 0.1 * 32
    start = np.array([[42, 26], [42, 6], [22, 6]], np.float32)  # across and down: (32, 16) plus or minus 10
    matrix = cv2.getAffineTransform(start, start + shift.astype(np.float32))
    pixels = (image[0] / 255.0).astype(np.float32)
    moved = cv2.warpAffine(pixels, matrix, (64, 32), borderMode=cv2.BORDER_REFLECT_101)
    assert np.abs(ours + 0.5 - np.clip(moved, 0, 1) * 255).max() < 0.51
