import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.augment import IDENTITY, RSDA_OPERATIONS, apply_named, apply_tuple, draw_tuples, pillow
from asrnorm.data.augment.rsda import apply_unread
from helpers.pictures import difference, one_by_one, pictures, to_batch

PATHS = {"read": apply_tuple, "unread": apply_unread}
EVERY_LEVEL = [(o, i) for o, operation in enumerate(RSDA_OPERATIONS) for i in range(len(operation.levels))]


def named(ops, levels):
    return [(RSDA_OPERATIONS[o].name, RSDA_OPERATIONS[o].levels[i]) for o, i in zip(ops, levels, strict=True) if o >= 0]


def expected_of(images, ops, levels):
    return one_by_one(images, lambda image: pillow.apply_named(image, named(ops, levels)))


@pytest.fixture(scope="module")
def photographs():
    data = pytest.importorskip("skimage.data")
    images = [data.astronaut(), data.coffee(), data.chelsea()]
    return to_batch([np.ascontiguousarray(image[40:168, 100:228]) for image in images])


def test_the_grids_are_those_of_the_source():
    grids = {operation.name: operation.levels for operation in RSDA_OPERATIONS}
    factors = ["brightness", "color", "contrast", "sharpness"]
    shifts = ["shift_red", "shift_green", "shift_blue"]
    assert list(grids) == ["autocontrast", *factors, "solarize", "grayscale", *shifts]
    assert grids["autocontrast"] == tuple(np.linspace(0, 0.3, 20))
    assert all(grids[name] == tuple(np.linspace(0.6, 1.4, 20)) for name in factors)
    assert grids["solarize"] == (*range(19), 20)
    assert grids["grayscale"] == (0,)
    assert all(grids[name][:3] == (-120, -111, -103) and len(grids[name]) == 30 for name in shifts)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("op", "level"), EVERY_LEVEL)
def test_every_operation_and_level_equals_pillow(path, op, level):
    images = pictures()
    result = PATHS[path](images, torch.tensor([op]), torch.tensor([level]))
    assert difference(result, expected_of(images, [op], [level])) == 0


@pytest.mark.parametrize("op", range(len(RSDA_OPERATIONS)))
def test_photographs_equal_pillow(op, photographs):
    for level in range(0, len(RSDA_OPERATIONS[op].levels), 6):
        result = apply_tuple(photographs, torch.tensor([op]), torch.tensor([level]))
        assert difference(result, expected_of(photographs, [op], [level])) == 0


@pytest.mark.parametrize("path", PATHS)
def test_chains_of_three_on_photographs_equal_pillow(path, photographs):
    ops, levels = draw_tuples(12, torch.Generator().manual_seed(1))
    for op, level in zip(ops, levels, strict=True):
        result = PATHS[path](photographs, op, level)
        assert difference(result, expected_of(photographs, op.tolist(), level.tolist())) == 0


@settings(max_examples=80, deadline=None)
@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.sampled_from(EVERY_LEVEL), min_size=0, max_size=4),
)
def test_any_chain_on_any_shape_equals_pillow(height, width, seed, steps):
    images = pictures(height, width, seed)
    ops, levels = [op for op, _ in steps], [level for _, level in steps]
    expected = expected_of(images, ops, levels)
    as_data = torch.tensor(ops, dtype=torch.int64), torch.tensor(levels, dtype=torch.int64)
    assert difference(apply_tuple(images, *as_data), expected) == 0
    assert difference(apply_unread(images, *as_data), expected) == 0
    assert difference(apply_named(images, named(ops, levels)), expected) == 0


@pytest.mark.parametrize("path", PATHS)
def test_each_sample_may_have_its_own_tuple(path):
    images = pictures()
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        ops, levels = draw_tuples(len(images), generator)
        ops[::3, 1] = IDENTITY
        expected = one_by_one(
            images, lambda i, op, level: pillow.apply_named(i, named(op, level)), ops.tolist(), levels.tolist()
        )
        assert difference(PATHS[path](images, ops, levels), expected) == 0


@pytest.mark.parametrize("path", PATHS)
def test_the_identity_changes_nothing(path):
    images = pictures()
    none = torch.full((3,), IDENTITY)
    assert torch.equal(PATHS[path](images, none, torch.zeros(3, dtype=torch.int64)), images)


def test_tuples_are_uniform_over_operations_and_each_ones_levels():
    ops, levels = draw_tuples(20_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(ops.flatten(), minlength=10) / ops.numel()
    assert (shares - 0.1).abs().max() < 0.01
    for index, operation in enumerate(RSDA_OPERATIONS):
        drawn = torch.bincount(levels[ops == index])
        assert len(drawn) == len(operation.levels)
        assert drawn.min() > 0.7 * drawn.float().mean()


def test_the_same_seed_draws_the_same_tuples():
    first, second = (draw_tuples(50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_wrong_tuples_are_named():
    images = pictures()
    one = torch.tensor([0])
    with pytest.raises(InputError):
        apply_tuple(images, torch.tensor([10]), one)
    with pytest.raises(InputError):
        apply_tuple(images, torch.tensor([6]), torch.tensor([1]))
    with pytest.raises(InputError):
        apply_tuple(images, one, torch.tensor([0, 0]))
    with pytest.raises(InputError):
        apply_tuple(images, torch.zeros(3, 3, dtype=torch.int64), torch.zeros(3, 3, dtype=torch.int64))
    with pytest.raises(UnknownNameError, match="did you mean 'solarize'"):
        apply_named(images, [("solarise", 3)])
