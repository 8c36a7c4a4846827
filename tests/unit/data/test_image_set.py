"""Labelled images, in memory and in files; subsets and splits of them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.data.image import read_image
from asrnorm.data.image_set import FileSet, ImageSet, balanced_subset, concatenate, split_stratified
from helpers.published import noise


def make(count=6):
    return ImageSet(noise(count, 4, 4, 3), np.arange(count))


@pytest.mark.parametrize(
    ("images", "labels", "error"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int64), InputTypeError),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32), InputTypeError),
        (np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, np.int64), InputError),
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), InputError),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), InputError),
    ],
)
def test_other_shapes_and_dtypes_are_refused(images, labels, error):
    with pytest.raises(error):
        ImageSet(images, labels)


@pytest.mark.parametrize("in_files", [False, True])
def test_a_data_loader_of_torch_takes_it(tmp_path, in_files):
    data = expected = make()
    if in_files:
        for row, image in enumerate(data.images):
            Image.fromarray(image).save(tmp_path / f"{row}.png")
        data = FileSet(tuple(tmp_path / f"{row}.png" for row in range(6)), data.labels, (4, 4))
    batches = list(torch.utils.data.DataLoader(data, batch_size=4))
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert torch.equal(images, torch.from_numpy(expected.images).permute(0, 3, 1, 2) / 255)
    assert labels.tolist() == list(range(6))
    assert len(list(data)) == 6


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        make().labels = np.zeros(6, np.int64)


@pytest.mark.parametrize("rows", [slice(1, 4), [1, 2, 3], np.array([1, 2, 3])])
def test_neighbors_are_a_view(rows):
    data = make()
    part = data.take(rows)
    assert part.labels.tolist() == [1, 2, 3]
    assert np.shares_memory(part.images, data.images)


def test_a_mask_takes_what_it_marks():
    mask = np.array([True, False, False, True, False, True])
    assert make().take(mask).labels.tolist() == [0, 3, 5]
    with pytest.raises(IndexError):
        make().take(mask[:4])


@pytest.mark.parametrize("rows", [[3, 1], [0, 0], [], [-2, -1]])
def test_other_rows_are_taken_as_numpy_would(rows):
    data = make()
    np.testing.assert_array_equal(data.take(rows).images, data.images[np.array(rows, int)])


def test_concatenation_keeps_the_order():
    first, second = make(2), make(3)
    both = concatenate([first, second])
    assert both.labels.tolist() == [0, 1, 0, 1, 2]
    np.testing.assert_array_equal(both.images[2:], second.images)
    assert concatenate([first]) is first


def test_an_image_is_that_of_its_file(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(noise(9, 7, 3)).save(path)
    data = FileSet((path, path), np.array([1, 0]), (4, 6))
    assert len(data) == 2
    np.testing.assert_array_equal(data.read(1), read_image(path, size=(4, 6)))
    np.testing.assert_array_equal(data.read_rows([1, 0, 1])[2], data.read(1))
    assert data.read_rows([]).shape == (0, 4, 6, 3)
    assert data.class_counts(3).tolist() == [1, 1, 0]


@pytest.mark.parametrize("rows", [slice(None, None, 2), np.array([0, 2]), [0, 2]])
def test_some_of_the_images(rows):
    data = FileSet(tuple(Path(f"{name}.png") for name in "abc"), np.array([5, 6, 7]), (4, 6)).take(rows)
    assert [path.stem for path in data.paths] == ["a", "c"]
    assert (data.labels.tolist(), data.image_size) == ([5, 7], (4, 6))


@pytest.mark.parametrize("labels", [np.zeros(2, np.int64), np.zeros(1, np.int32)])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(InputError):
        FileSet((Path("x.png"),), labels, (4, 4))


def test_a_small_class_leaves_its_share_to_the_others():
    labels = [0] * 10 + [1] * 2
    assert Counter(labels[row] for row in balanced_subset(labels, 8)) == {0: 6, 1: 2}
    assert balanced_subset(labels, 12).tolist() == list(range(12))


def test_classes_that_take_turns_are_all_there():
    labels = [row % 10 for row in range(10_000)]
    assert set(Counter(labels[row] for row in balanced_subset(labels, 1000)).values()) == {100}


@given(labels=st.lists(st.integers(0, 6), min_size=1, max_size=60), limit=st.integers(1, 70))
def test_as_many_rows_as_asked_for_and_no_class_gets_two_more_than_one_that_has_more(labels, limit):
    rows = balanced_subset(labels, limit).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == min(limit, len(labels))
    taken, there = Counter(labels[row] for row in rows), Counter(labels)
    most = max(taken.values())
    assert all(taken[label] >= min(there[label], most - 1) for label in there)


def keys(count):
    return [f"photo/{row}.jpg" for row in range(count)]


@given(
    strata=st.lists(st.integers(0, 3), max_size=60),
    fractions=st.lists(st.floats(0, 0.45), min_size=1, max_size=2),
    seed=st.integers(0, 5),
)
def test_every_row_is_in_one_part_and_every_class_in_the_rest(strata, fractions, seed):
    parts = split_stratified(keys(len(strata)), strata, fractions, seed=seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(strata)))
    assert {strata[row] for row in parts[-1]} == set(strata)
    for part, fraction in zip(parts, fractions, strict=False):
        for stratum in set(strata):
            size, total = sum(strata[row] == stratum for row in part), strata.count(stratum)
            assert size <= max(1, round(fraction * total))
            if fraction == 0:
                assert size == 0


def test_shares_are_kept_in_every_class():
    strata = [0] * 100 + [1] * 10
    held, rest = split_stratified(keys(110), strata, [0.1], seed=0)
    assert np.bincount([strata[row] for row in held]).tolist() == [10, 1]
    assert len(rest) == 99


def test_the_split_is_this_one_on_every_machine():
    held, _ = split_stratified(keys(20), [0] * 20, [0.25], seed=0)
    assert held.tolist() == EXPECTED
    assert split_stratified(keys(20), [0] * 20, [0.25], seed=1)[0].tolist() != EXPECTED


EXPECTED = [4, 9, 11, 15, 18]  # the five smallest of sha256('0\0photo/<row>.jpg')


def test_a_file_that_is_added_moves_few_others():
    before = set(split_stratified(keys(200), [0] * 200, [0.1], seed=0)[0].tolist())
    after = set(split_stratified(keys(205), [0] * 205, [0.1], seed=0)[0].tolist())
    assert len(before - after) <= 2


@pytest.mark.parametrize("fractions", [[-0.1], [1.0], [0.6, 0.5], [float("nan")]])
def test_shares_that_leave_nothing_are_refused(fractions):
    with pytest.raises(InputError):
        split_stratified(keys(4), [0] * 4, fractions, seed=0)


def test_of_a_small_class_one_image_is_held_however_small_the_share():
    held, rest = split_stratified([str(row) for row in range(23)], [0] * 20 + [1] * 3, [0.1], seed=0)
    assert [sum(int(row) >= 20 for row in part) for part in (held, rest)] == [1, 2]


def test_the_number_held_out_is_the_nearest_to_the_share():
    strata = [0] * 16 + [1] * 14
    held, _ = split_stratified([str(row) for row in range(30)], strata, [0.1], seed=0)
    assert np.bincount([strata[row] for row in held]).tolist() == [2, 1]


def test_joined_sets_know_which_one_an_image_is_from():
    files = FileSet((Path("a"), Path("b")), np.array([0, 1]), (4, 4))
    assert make().domains is None
    assert concatenate([make()]).domains is None
    for joined in (concatenate([make(2), make(1), make(3)]), concatenate([files, files.take([0]), files])):
        counts = np.bincount(joined.domains).tolist()
        assert counts[1] == 1
        rows = [len(joined) - 1, 2, 0]
        assert joined.take(rows).domains.tolist() == [2, 1, 0]
