"""Batches of a set: every image once, the same batches for any number of processes, sizes within one of each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet
from asrnorm.evaluation.score import iterate_batches, iterate_bundles
from helpers.toy_suite import make_images


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 5))
def test_processes_share_the_batches_of_one(count, batch_size, num_processes):
    data = ImageSet(np.zeros((count, 2, 2, 3), np.uint8), np.arange(count))
    alone = [(number, labels.tolist()) for number, _, labels in iterate_batches(data, batch_size)]
    shared = [
        (number, labels.tolist())
        for rank in range(num_processes)
        for number, _, labels in iterate_batches(data, batch_size, World(rank, num_processes))
    ]
    assert shared == alone
    assert sorted(label for _, labels in alone for label in labels) == list(range(count))
    sizes = [len(labels) for _, labels in alone]
    assert len(sizes) == -(-count // batch_size)
    assert not sizes or batch_size >= max(sizes) >= min(sizes) >= max(sizes) - 1


@given(st.integers(0, 50), st.integers(1, 20), st.integers(1, 6), st.integers(1, 3))
def test_bundles_hold_the_same_batches_of_one_size_one_after_the_other(count, batch_size, together, num_processes):
    data = ImageSet(np.arange(count, dtype=np.uint8).reshape(-1, 1, 1, 1).repeat(3, 3), np.arange(count))
    alone = list(iterate_bundles(data, batch_size, together))
    batches = [part.tolist() for bundle in alone for part in np.split(bundle.labels, bundle.batches)]
    assert batches == [labels.tolist() for _, _, labels in iterate_batches(data, batch_size)]
    assert all(bundle.batches <= together for bundle in alone)
    assert len(alone) <= -(-len(batches) // together) + 1
    assert all((bundle.images[:, 0, 0, 0] == bundle.labels).all() for bundle in alone)
    shared = [
        bundle.labels.tolist()
        for rank in range(num_processes)
        for bundle in iterate_bundles(data, batch_size, together, World(rank, num_processes))
    ]
    assert shared == [bundle.labels.tolist() for bundle in alone]


def test_files_give_the_batches_of_the_decoded_images(tmp_path):
    data = make_images(7)
    paths = tuple(tmp_path / f"{row}.png" for row in range(7))
    for path, image in zip(paths, data.images, strict=True):
        Image.fromarray(image).save(path)
    files = FileSet(paths, data.labels, (8, 8))
    for (_, images, labels), (_, read, same) in zip(iterate_batches(data, 3), iterate_batches(files, 3), strict=True):
        np.testing.assert_array_equal(images, read)
        np.testing.assert_array_equal(labels, same)


def test_a_batch_size_below_one_is_refused():
    with pytest.raises(InputError, match="batch_size must be at least 1"):
        next(iterate_batches(make_images(3), 0))
