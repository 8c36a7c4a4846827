import numpy as np
import pytest

from asrnorm.data.corruptions import corrupt
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.blur import _origins


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
