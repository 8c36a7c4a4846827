"""First and second derivatives of every norm against torch's own finite differences, entry by entry."""

import pytest
import torch
from torch.func import functional_call

from helpers.norm_case import PLAIN, NormCase, both_modes, draw_input

CASES = [
    *PLAIN,
    *both_modes(
        NormCase("dsbn", {"num_domains": 2}, domain=(1, 0, 1)),
        NormCase("dson", {"num_domains": 2}, domain=(1, 0, 1)),
        NormCase("asr", {"statistics": "batch", "gated_rescale": True, "per_channel_lambda": True}),
    ),
    NormCase("asr", {"residual": False, "share_rescale_encoder": False}),
    NormCase("asr", {"statistics": "layer", "bias": False}),
    NormCase("asr", {"activation": "relu"}),
    NormCase("gn", {"num_groups": 2}),
    NormCase("ilm", {"group_size": 2}),
]


def function_and_inputs(case, shape):
    """The layer as a function of its input and of all its parameters, with a point to check it at."""
    layer = case.layer(shape[1])
    names = [name for name, _ in layer.named_parameters()]

    def function(x, *values):
        return functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    values = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    return function, (draw_input(shape).requires_grad_(), *values)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradcheck(case):
    function, inputs = function_and_inputs(case, (3, 4, 2, 3))
    assert torch.autograd.gradcheck(function, inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradgradcheck(case):
    function, inputs = function_and_inputs(case, (3, 2, 2, 2))
    assert torch.autograd.gradgradcheck(function, inputs)
