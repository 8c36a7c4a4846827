import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.distributed import ALONE, World
from helpers.processes import run_processes


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


def sum_of_some(world):
    """Gradients after the sum, of parameters that all, one and none of the processes have used."""
    shared, own, unused = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    shared.grad = torch.full((2,), float(world.rank + 1))
    if world.rank == 1:
        own.grad = torch.full((2,), 5.0)
    world.sum_gradients([shared, own, unused])
    return [None if parameter.grad is None else parameter.grad.tolist() for parameter in (shared, own, unused)]


def test_processes_that_used_other_parameters_agree_on_their_gradients(tmp_path):
    expected = [[3.0, 3.0], [5.0, 5.0], None]
    assert run_processes(sum_of_some, 2, tmp_path) == [expected, expected]
