import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.methods.ascent import choose_rows


def rows(growth, *, size, num_source=10, round_number=1, count=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return choose_rows(
        growth, num_source=num_source, size=size, round_number=round_number, count=count, generator=generator
    )


def test_volpi_takes_the_first_of_the_source_and_later_a_draw_of_all():
    assert rows("volpi", size=10).tolist() == [0, 1, 2, 3]
    assert rows("volpi", size=10, count=99).tolist() == list(range(10))
    later = rows("volpi", size=100, count=50)
    assert len(set(later.tolist())) == 50
    assert later.max() >= 10
    assert not torch.equal(later, rows("volpi", size=100, count=50, seed=1))


def test_me_ada_takes_all_and_source_the_source():
    assert rows("me_ada", size=25).tolist() == list(range(25))
    assert rows("source", size=25).tolist() == list(range(10))


@given(num_source=st.integers(1, 60), rounds=st.integers(1, 5), seed=st.integers(0, 99))
def test_m_ada_takes_an_rth_of_the_number_and_of_these_an_rth_from_the_source(num_source, rounds, seed):
    size = num_source
    for round_number in range(1, rounds + 1):
        chosen = rows("m_ada", size=size, num_source=num_source, round_number=round_number, seed=seed)
        number = num_source // round_number
        assert len(chosen) == len(set(chosen.tolist())) == number
        assert int((chosen < num_source).sum()) == number // round_number
        assert number == 0 or 0 <= chosen.min() <= chosen.max() < size
        size += number


@pytest.mark.parametrize("growth", ["volpi", "m_ada"])
def test_draws_are_a_function_of_the_generator(growth):
    one, two = (rows(growth, size=30, round_number=2, seed=5) for _ in range(2))
    assert torch.equal(one, two)


def test_m_ada_draws_its_grown_images_from_all_domains():
    settings = {"num_source": 60, "size": 180, "round_number": 3, "count": 0}
    one, other = (choose_rows("m_ada", generator=torch.Generator().manual_seed(s), **settings) for s in (0, 1))
    grown = one[one >= 60]
    assert len(grown) == len(set(grown.tolist())) == 20 - 6
    assert grown.min() < 120 <= grown.max()
    assert set(grown.tolist()) != set(other[other >= 60].tolist())
