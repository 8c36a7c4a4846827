import pytest
import torch

from asrnorm.norms import SwitchNormInLn, reference
from helpers.interpreted_switchable import CASES, compare, frozen, half_parameters, second_derivatives
from helpers.interpreter import interpret
from helpers.kernel_case import KernelCase


def test_the_kernels_equal_the_reference_in_the_interpreter():
    assert int(interpret("interpreted_switchable")) == 2 * len(CASES)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(9, 64, 32, 32), (128, 256, 8, 8), (3, 1000, 2, 2)])
def test_a_gpu_is_as_exact_as_eager(shape, dtype, layout, activation):
    compare(KernelCase(shape, "sn_in_ln", dtype=dtype, layout=layout), activation, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("checked", [frozen, second_derivatives, half_parameters])
def test_a_gpu_has_the_gradients_of_the_reference(checked):
    checked("cuda")


@pytest.mark.gpu
def test_a_traced_layer_is_as_exact_as_one_by_the_kernels(monkeypatch):
    layer = SwitchNormInLn(16, device="cuda")
    x, dy = (torch.randn(4, 16, 8, 8, device="cuda") for _ in range(2))
    x.requires_grad_()
    found = [torch.autograd.grad(layer(x), [x, *layer.parameters()], dy)]
    monkeypatch.setattr("asrnorm.kernels.launch.is_traced", lambda x: True)
    found.append(torch.autograd.grad(layer(x), [x, *layer.parameters()], dy))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_moments_of_a_sample_are_those_of_its_values():
    x = 5 + 2 * torch.randn(3, 4, 6, dtype=torch.float64)
    instance, layer = reference.sample_moments(x.mean(2), x.var(2, correction=0), 6)
    torch.testing.assert_close(instance, (x.mean(2), x.var(2)))
    torch.testing.assert_close(layer[0][:, 0], x.mean((1, 2)))
    within = x.var(2).mean(1)
    torch.testing.assert_close(layer[1][:, 0], within + x.mean(2).var(1, correction=0))
