from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from asrnorm.data.corruptions import corrupt

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 32, 48, 3), dtype=np.uint8)


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
