import numpy as np

from asrnorm.data.synthetic.sources import build_uci, restore_scan


def load_digits():
    from sklearn import datasets

    return datasets.load_digits()


def test_labels_and_order_are_those_of_the_library():
    images, labels = build_uci()
    assert (images.shape, images.dtype, labels.dtype) == ((1797, 32, 32, 3), np.uint8, np.int64)
    np.testing.assert_array_equal(labels, load_digits().target)
    np.testing.assert_array_equal(images[..., 0], images[..., 2])


def test_counting_the_ink_of_the_restored_scan_gives_the_counts_back():
    counts = load_digits().images
    blocks = restore_scan(counts).reshape(-1, 8, 4, 8, 4).mean((2, 4)) * 16 / 255
    assert np.abs(blocks - counts).mean() < 1.5
    assert np.corrcoef(blocks.ravel(), counts.ravel())[0, 1] > 0.97


def test_most_pixels_are_ink_or_paper_as_in_a_scan():
    scan = restore_scan(load_digits().images)
    assert ((scan < 32) | (scan > 223)).mean() > 0.75
