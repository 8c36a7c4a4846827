import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.world import ALONE, World


@given(count=st.integers(0, 50), size=st.integers(1, 7))
def test_shares_are_disjoint_in_order_and_complete(count, size):
    things = list(range(count))
    shares = [things[World(rank, size).share(count)] for rank in range(size)]
    assert [thing for share in shares for thing in share] == things
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_everything_is_as_it_is():
    x = torch.randn(3, 2)
    assert ALONE.gather(x) is x
    assert ALONE.sum(x) is x
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    ALONE.sum_gradients([parameter])
    assert torch.equal(parameter.grad, torch.ones(2))
