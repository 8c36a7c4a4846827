"""The order of batches is a function of seed and step."""

import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.data.batch_order import BatchOrder


@pytest.mark.parametrize("drop_last", [True, False])
def test_an_epoch_holds_every_image_at_most_once(drop_last):
    order = BatchOrder(count=23, batch_size=5, seed=3, drop_last=drop_last)
    for epoch in range(3):
        rows = torch.cat([order.rows(epoch * len(order) + step) for step in range(len(order))])
        assert len(set(rows.tolist())) == len(rows) == (20 if drop_last else 23)


def test_epochs_and_seeds_differ_and_repeat_themselves():
    order = BatchOrder(count=50, batch_size=50, seed=1)
    assert order.rows(0).tolist() != order.rows(1).tolist()
    assert order.rows(0).tolist() != BatchOrder(count=50, batch_size=50, seed=2).rows(0).tolist()
    assert order.rows(7).tolist() == BatchOrder(count=50, batch_size=50, seed=1).rows(7).tolist()


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    rows = BatchOrder(count=11, batch_size=3, seed=9).rows(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(BatchOrder(count=11, batch_size=3, seed=9).rows(4), rows)


def test_a_caller_cannot_change_the_order_for_others():
    order = BatchOrder(count=6, batch_size=6, seed=5)
    expected = order.rows(0).tolist()
    order.rows(0).zero_()
    assert order.rows(0).tolist() == expected


@pytest.mark.parametrize("options", [{"count": 0}, {"batch_size": 0}, {"seed": -1}, {"batch_size": 9}])
def test_sizes_that_give_no_batch_are_refused(options):
    with pytest.raises(InputError):
        BatchOrder(**{"count": 8, "batch_size": 2, **options})


def test_seed_and_epoch_are_not_added_up():
    orders = (BatchOrder(count=50, batch_size=50, seed=seed) for seed in range(9))
    assert len({tuple(order.rows(epoch).tolist()) for order in orders for epoch in range(9)}) == 81
