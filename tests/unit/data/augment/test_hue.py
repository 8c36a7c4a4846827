import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from asrnorm.data.augment import pillow, shift_hue
from asrnorm.data.augment.color import hsv_to_rgb, rgb_to_hsv
from helpers.pictures import difference, one_by_one, pictures, to_batch

VALUES = np.arange(256, dtype=np.uint8)


def plane(first: int) -> np.ndarray:
    """All 65,536 triples that begin with a value, as an image."""
    return np.stack(np.broadcast_arrays(np.uint8(first), VALUES[:, None], VALUES[None]), -1)


def test_both_ways_equal_pillow_for_every_fifth_plane_of_the_cube():
    for first in range(0, 256, 5):
        triples = plane(first)
        as_tensor = to_batch([triples]).float()
        hsv = to_batch([np.asarray(Image.fromarray(triples).convert("HSV"))])
        assert difference(rgb_to_hsv(as_tensor).to(torch.uint8), hsv) == 0
        from_hsv = Image.frombytes("HSV", (256, 256), np.ascontiguousarray(triples).tobytes()).convert("RGB")
        assert difference(hsv_to_rgb(as_tensor).to(torch.uint8), to_batch([np.asarray(from_hsv)])) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), amounts=st.lists(st.floats(-0.5, 0.5), min_size=8, max_size=8))
def test_each_sample_turns_by_its_own_amount_as_pillow_does(seed, amounts):
    images = pictures(13, 11, seed)
    expected = one_by_one(images, pillow.shift_hue, amounts)
    assert difference(shift_hue(images, torch.tensor(amounts, dtype=torch.float64)), expected) == 0


def test_gray_images_have_no_hue_to_turn():
    gray = torch.arange(256, dtype=torch.uint8).expand(1, 3, 1, 256)
    assert torch.equal(shift_hue(gray, 0.3), gray)
