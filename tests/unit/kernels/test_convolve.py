from itertools import product

import pytest
import torch
import torch.nn.functional as F

from asrnorm import create_model, ops
from asrnorm.models.digits_convnet import convolve_small
from helpers.interpreted_convolve import LAYOUTS, SHAPES, compare, second_derivative
from helpers.interpreter import interpret

# Ten bits of each factor; a sum of up to 25,088 products of them.
TF32 = 2e-3
DIGITS = (((32, 3, 32, 32), (64, 5, 5)), ((500, 3, 32, 32), (64, 5, 5)))


def test_the_kernels_convolve_as_float64_does_in_the_interpreter():
    assert int(interpret("interpreted_convolve")) == len(SHAPES) * len(LAYOUTS) ** 2 * 2


def test_elsewhere_it_is_pytorch_s():
    x, weight, bias = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 5, 5), torch.randn(4)
    assert torch.equal(convolve_small(x, weight, bias), F.conv2d(x, weight, bias))
    assert torch.equal(convolve_small(x, weight), F.conv2d(x, weight))


def test_a_convolution_keeps_its_hooks_and_the_names_of_its_weights():
    net = create_model("digits_convnet", norm="none")
    seen = []
    net.conv1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    net(torch.rand(2, 3, 32, 32))
    assert seen == [(2, 64, 28, 28)]
    assert {"conv1.weight", "conv1.bias"} <= set(net.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize(("images", "kernel"), [*SHAPES, *DIGITS])
@pytest.mark.parametrize("layouts", list(product(LAYOUTS, LAYOUTS)))
def test_a_gpu_convolves_as_float64_does(images, kernel, layouts):
    compare(images, kernel, layouts, True, "cuda", TF32)


@pytest.mark.gpu
def test_a_gpu_has_second_derivatives_of_it():
    second_derivative("cuda", TF32)


@pytest.mark.gpu
def test_gradients_are_the_same_to_the_bit_each_time():
    net = create_model("digits_convnet", norm="none").cuda().to(memory_format=torch.channels_last)
    images = torch.rand(32, 3, 32, 32, device="cuda")
    with ops.use_backend("triton"):
        first, second = (torch.autograd.grad(net(images).square().sum(), list(net.parameters())) for _ in "ab")
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("change", ["autocast", "no tf32", "contiguous", "float64", "long sums"])
def test_a_gpu_leaves_to_pytorch_what_the_kernels_do_not_take(change, monkeypatch):
    weight = torch.randn(64, 6 if change == "long sums" else 3, 5, 5, device="cuda")
    images = torch.rand(4, weight.shape[1], 32, 32, device="cuda")
    if change != "contiguous":
        weight = weight.to(memory_format=torch.channels_last)
    if change == "no tf32":
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if change == "float64":
        weight, images = weight.double(), images.double()
    with torch.autocast("cuda", torch.bfloat16, enabled=change == "autocast"):
        assert torch.equal(convolve_small(images, weight), F.conv2d(images, weight))


@pytest.mark.gpu
def test_the_convnet_by_kernels_is_as_near_to_float64_as_by_pytorch():
    net = create_model("digits_convnet", norm="none").cuda().to(memory_format=torch.channels_last)
    images, found = torch.rand(32, 3, 32, 32, device="cuda"), {}
    for way, dtype in (("triton", torch.float32), ("reference", torch.float32), ("float64", torch.float64)):
        net.to(dtype)
        with ops.use_backend("triton" if way == "triton" else "reference"):
            loss = net(images.to(dtype)).square().sum()
        found[way] = [slope.double() for slope in torch.autograd.grad(loss, list(net.parameters()))]
    errors = {
        way: [torch.dist(a, b) / b.norm() for a, b in zip(found[way], found["float64"], strict=True)] for way in found
    }
    for mine, theirs in zip(errors["triton"], errors["reference"], strict=True):
        assert mine <= 2 * theirs + TF32
    assert not torch.equal(found["triton"][0], found["reference"][0]), "the kernels were not taken"
