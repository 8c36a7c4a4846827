import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.blur import smear

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


def test_flat_images_stay_as_they_are():
    flat = np.arange(256, dtype=np.uint8).repeat(12).reshape(256, 2, 2, 3)
    np.testing.assert_array_equal(corrupt(flat, "motion_blur", severity=3), flat)
