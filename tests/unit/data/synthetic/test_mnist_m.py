import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.synthetic import build_mnist_m
from asrnorm.data.synthetic.digits_mini import blend

LABELS = np.arange(20) % 10


@pytest.fixture
def digits():
    digits = np.zeros((20, 28, 28), np.uint8)
    digits[:, 8:20, 10:14] = 255
    return digits


def test_strokes_are_the_inverted_patch_and_the_rest_is_the_patch(digits):
    patches = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    blended = blend(digits, patches)
    stroke = np.zeros((32, 32), bool)
    stroke[10:22, 12:16] = True
    np.testing.assert_array_equal(blended[:, stroke], 255 - patches[:, stroke])
    np.testing.assert_array_equal(blended[:, ~stroke], patches[:, ~stroke])
    np.testing.assert_array_equal(
        blended, np.abs(patches.astype(int) - 255 * stroke[None, :, :, None]), "the absolute difference of the paper"
    )


def test_images_and_labels_have_the_form_of_the_published_set(digits):
    images, labels = build_mnist_m(digits, LABELS.astype(np.uint8), seed=3)
    assert (images.shape, images.dtype, labels.dtype) == ((20, 32, 32, 3), np.uint8, np.int64)
    np.testing.assert_array_equal(labels, LABELS)
    assert images.reshape(20, -1).std(1).min() > 0


def test_the_seed_chooses_the_patches(digits):
    one, again, other = (build_mnist_m(digits, LABELS, seed=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize(
    ("images", "labels", "line"),
    [
        (np.zeros((20, 32, 32), np.uint8), LABELS, r"\(n, 28, 28\)"),
        (np.zeros((20, 28, 28)), LABELS, "uint8"),
        (np.zeros((19, 28, 28), np.uint8), LABELS, "19 images need as many labels"),
    ],
)
def test_wrong_input_is_refused(images, labels, line):
    with pytest.raises(InputError, match=line):
        build_mnist_m(images, labels)


@pytest.mark.data
def test_the_published_images_follow_the_rule():
    root = Path(os.environ.get("ASRNORM_DATA", ""))
    mnist, published = root / "MNIST/raw/t10k-images-idx3-ubyte", root / "mnist_m/mnist_m_test"
    if not os.environ.get("ASRNORM_DATA") or not mnist.is_file() or not published.is_dir():
        pytest.skip("needs MNIST/raw/t10k-images-idx3-ubyte and mnist_m/mnist_m_test under ASRNORM_DATA")
    files = sorted(published.glob("*.png"))[:200]
    images = np.stack([np.asarray(Image.open(file).convert("RGB")) for file in files])
    digits = np.frombuffer(mnist.read_bytes(), np.uint8, 200 * 784, 16).reshape(200, 28, 28)

    def roughness(pictures):
        pictures = pictures.astype(float)
        return np.abs(np.diff(pictures, axis=1)).mean() + np.abs(np.diff(pictures, axis=2)).mean()

    # Blending is its own inverse: by the right rule the photographs come back, and these are smoother.
    restored = roughness(blend(digits, images))
    assert restored < 0.7 * roughness(images)
    thresholded = np.where(digits > 4, digits, 0)
    moved = np.roll(digits, 1, axis=1)
    assert restored < roughness(blend(thresholded, images)) < roughness(blend(moved, images))
