from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from asrnorm.data.image_set import choose_evenly


def test_a_small_class_leaves_its_share_to_the_others():
    labels = [0] * 10 + [1] * 2
    assert Counter(labels[row] for row in choose_evenly(labels, 8)) == {0: 6, 1: 2}
    assert choose_evenly(labels, 12).tolist() == list(range(12))


def test_classes_that_take_turns_are_all_there():
    labels = [row % 10 for row in range(10_000)]
    assert set(Counter(labels[row] for row in choose_evenly(labels, 1000)).values()) == {100}


@given(labels=st.lists(st.integers(0, 6), min_size=1, max_size=60), limit=st.integers(1, 70))
def test_as_many_rows_as_asked_for_and_no_class_gets_two_more_than_one_that_has_more(labels, limit):
    rows = choose_evenly(labels, limit).tolist()
    assert rows == sorted(set(rows))
    assert len(rows) == min(limit, len(labels))
    taken, there = Counter(labels[row] for row in rows), Counter(labels)
    most = max(taken.values())
    assert all(taken[label] >= min(there[label], most - 1) for label in there)
