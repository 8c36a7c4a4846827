"""`torch.compile(fullgraph=True)` of every norm: one graph, the same numbers, forward and backward."""

import copy

import pytest
import torch

from helpers.norm_family import ALL, randomized

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch itself


def loss_and_gradients(layer, x):
    x = x.detach().clone().requires_grad_()
    y = layer(x)
    y.square().mean().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", sorted(set(ALL) - {"none"}))
def test_compiled_training_step_agrees_with_eager(name):
    torch._dynamo.reset()
    layer = randomized(name, 16)
    eager = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True)
    x = torch.randn(4, 16, 6, 6)
    for got, expected in zip(loss_and_gradients(compiled, x), loss_and_gradients(eager, x), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    for got, expected in zip(layer.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def test_compiled_asr_under_autocast_is_one_graph():
    torch._dynamo.reset()
    layer = randomized("asr", 16)
    x = torch.randn(4, 16, 6, 6).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x), rtol=2e-2, atol=2e-2)
