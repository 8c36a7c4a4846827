import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.severity import severity_options

filters = pytest.importorskip("skimage.filters")
cv2 = pytest.importorskip("cv2")
IMAGES = np.random.default_rng(0).integers(0, 200, (6, 32, 32, 3), dtype=np.uint8)


def plain_water(image, layer, options):
    layer = np.where(layer < options["threshold"], 0, layer)
    liquid = (layer * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance[distance > 20] = 20
    distance = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    light = liquid * cv2.blur(cv2.filter2D(distance, cv2.CV_8U, emboss), (3, 3)).astype(np.float32)
    water = np.array([175, 238, 238]) / 255
    return np.clip(image + (options["strength"] * light / light.max())[..., None] * water, 0, 1) * 255


def plain_mud(image, layer, options):
    cover = filters.gaussian((layer > options["threshold"]).astype(np.float32), sigma=options["strength"])
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    return np.clip(image * (1 - cover) + np.array([63, 42, 20]) / 255 * cover, 0, 1) * 255


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_spatter_equals_the_plain_steps(severity):
    options = severity_options("spatter", severity, "cifar")
    noise = Streams(0, "spatter", severity, range(6)).normal(32, 32)
    plain = plain_mud if options["mud"] else plain_water
    for image, drawn, got in zip(IMAGES, noise, corrupt(IMAGES, "spatter", severity=severity), strict=True):
        layer = filters.gaussian(options["mean"] + options["sd"] * drawn, sigma=options["sigma"])
        assert np.abs(got + 0.5 - plain(image / 255.0, layer, options)).max() < 0.51


def test_water_adds_light_and_mud_covers():
    black = np.zeros((20, 32, 32, 3), np.uint8)
    water = corrupt(black, "spatter", severity=3).reshape(-1, 3).astype(float)
    wet = water[water.max(axis=1) > 40]
    np.testing.assert_allclose(wet[:, 0] / wet[:, 1], 175 / 238, atol=0.03)
    mud = corrupt(np.full_like(black, 255), "spatter", severity=5).reshape(-1, 3)
    assert mud.min(axis=0) == pytest.approx([63, 42, 20], abs=1)
    assert 0.01 < (mud[:, 0] < 255).mean() < 0.5


def test_an_image_without_a_drop_stays_as_it_is():
    dry = corrupt(IMAGES, "spatter", severity=1, threshold=9.0)
    assert np.abs(dry.astype(int) - IMAGES).max() <= 1
