"""Splits: balanced, disjoint, the same everywhere, and steady when files are added."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import InputError
from asrnorm.data.image_set import split_stratified


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
    with pytest.raises(InputError, match="held-out fractions"):
        split_stratified(keys(4), [0] * 4, fractions, seed=0)


def test_of_a_small_class_one_image_is_held_however_small_the_share():
    held, rest = split_stratified([str(row) for row in range(23)], [0] * 20 + [1] * 3, [0.1], seed=0)
    assert [sum(int(row) >= 20 for row in part) for part in (held, rest)] == [1, 2]


def test_the_number_held_out_is_the_nearest_to_the_share():
    strata = [0] * 16 + [1] * 14
    held, _ = split_stratified([str(row) for row in range(30)], strata, [0.1], seed=0)
    assert np.bincount([strata[row] for row in held]).tolist() == [2, 1]
