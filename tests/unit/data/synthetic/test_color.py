import numpy as np
import pytest
from PIL import Image

from asrnorm.data.synthetic.render import luma, sample_color_pairs


def test_luma_is_that_of_pillow():
    colors = np.random.default_rng(0).integers(0, 256, (1, 50, 3), dtype=np.uint8)
    grey = np.asarray(Image.fromarray(colors).convert("L"), float)
    np.testing.assert_allclose(luma(colors.astype(float)), grey, atol=1)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("contrast", [40.0, 120.0])
def test_pairs_keep_the_contrast_and_the_share_of_light_strokes(contrast, share):
    strokes, grounds = sample_color_pairs(2000, contrast, share, np.random.default_rng(0))
    difference = luma(strokes) - luma(grounds)
    assert (np.abs(difference) >= contrast).mean() > 0.99
    assert (difference > 0).mean() == pytest.approx(share, abs=0.04)
    assert min(strokes.min(), grounds.min()) >= 0
    assert max(strokes.max(), grounds.max()) <= 255


def test_an_impossible_contrast_gives_the_best_there_is():
    strokes, grounds = sample_color_pairs(50, 300.0, 1.0, np.random.default_rng(0))
    assert (luma(strokes) - luma(grounds)).min() > 80
