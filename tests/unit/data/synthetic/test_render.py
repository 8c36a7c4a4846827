from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from asrnorm.data.synthetic import render
from asrnorm.data.synthetic.render import RenderStyle, blur, luma, recolor_strokes, render_digits, sample_color_pairs

LABELS = np.arange(60) % 10
PLAIN = RenderStyle(
    aspect=0, rotation=0, shear=0, shift=0, neighbor_chance=0, gradient=0, blur=0, noise=0, light_share=1, contrast=120
)


def generator():
    return np.random.default_rng(7)


def ink(images):
    """Distance of each pixel from the color of the corner, 0 to 1."""
    distance = np.abs(images - images[:, :1, :1].astype(float)).sum(3)
    return distance / distance.max((1, 2), keepdims=True)


def test_one_image_a_label_the_same_each_time():
    images = render_digits(LABELS, RenderStyle(), generator())
    assert (images.shape, images.dtype) == ((60, 32, 32, 3), np.uint8)
    np.testing.assert_array_equal(images, render_digits(LABELS, RenderStyle(), generator()))
    assert len({image.tobytes() for image in images}) == 60


def test_a_plain_digit_stands_in_the_middle_at_its_height():
    for image in ink(render_digits(LABELS, PLAIN, generator())):
        ys, xs = np.nonzero(image > 0.3)
        assert abs(ys.min() + ys.max() - 31) <= 2
        assert abs(xs.min() + xs.max() - 31) <= 2
        assert 12 <= np.ptp(ys) + 1 <= 27  # old-style figures without ascender are lower


def test_the_label_chooses_the_digit():
    same_dice = [ink(render_digits(np.array([digit]), PLAIN, generator()))[0] for digit in range(10)]
    distances = [np.abs(a - b).mean() for i, a in enumerate(same_dice) for b in same_dice[:i]]
    assert min(distances) > 0.02


def test_neighbors_stand_at_both_sides_and_leave_the_middle_alone():
    alone, crowded = (
        ink(render_digits(LABELS, replace(PLAIN, neighbor_chance=chance, height=(16.0, 18.0)), generator()))
        for chance in (0, 1)
    )
    changed = (alone != crowded).mean(0)
    assert changed[:, :4].mean() > 0.2
    assert changed[:, -4:].mean() > 0.2
    assert np.abs(alone - crowded)[:, :, 14:18].mean() < 0.15 * np.abs(alone - crowded)[:, :, [0, 1, 30, 31]].mean()


@pytest.mark.parametrize(
    "changed",
    [{"rotation": 20.0}, {"shear": 0.3}, {"shift": 3.0}, {"aspect": 0.3}, {"gradient": 80.0}, {"noise": 20.0}],
)
def test_every_range_of_the_style_has_an_effect(changed):
    plain, varied = (render_digits(LABELS, style, generator()) for style in (PLAIN, replace(PLAIN, **changed)))
    assert (plain != varied).any(axis=(1, 2, 3)).mean() > 0.9


def test_many_images_are_made_in_chunks(monkeypatch):
    monkeypatch.setattr(render, "_CHUNK", 16)
    images = render_digits(LABELS, PLAIN, generator())
    assert (images.reshape(60, -1).std(1) > 0).all()


def test_blur_is_a_gaussian_with_each_image_its_own_width():
    images = np.random.default_rng(0).uniform(0, 255, (3, 32, 32, 3))
    sigmas = np.array([0.0, 0.8, 1.5])
    blurred = blur(images, sigmas)
    np.testing.assert_array_equal(blurred[0], images[0])
    for image, sigma, ours in zip(images[1:], sigmas[1:], blurred[1:], strict=True):
        theirs = ndimage.gaussian_filter(image, (sigma, sigma, 0), truncate=8.0)
        np.testing.assert_allclose(ours[12:20, 12:20], theirs[12:20, 12:20], rtol=1e-4)


def test_gray_values_run_from_ground_to_stroke():
    digits = np.array([[[0, 51, 255]]] * 200, np.uint8)
    painted = recolor_strokes(digits, np.random.default_rng(0), contrast=100, light_share=0.5).astype(float)
    ground, between, stroke = painted[:, 0, 0], painted[:, 0, 1], painted[:, 0, 2]
    np.testing.assert_allclose(between, ground + 0.2 * (stroke - ground), atol=1)
    lighter = stroke @ [0.299, 0.587, 0.114] > ground @ [0.299, 0.587, 0.114]
    assert 0.4 < lighter.mean() < 0.6
    assert len(np.unique(ground, axis=0)) == 200


def test_luma_is_that_of_pillow():
    colors = np.random.default_rng(0).integers(0, 256, (1, 50, 3), dtype=np.uint8)
    gray = np.asarray(Image.fromarray(colors).convert("L"), float)
    np.testing.assert_allclose(luma(colors.astype(float)), gray, atol=1)


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
