import pytest
import torch
import torch.nn.functional as F

from asrnorm import create_model, ops
from asrnorm.models.digits_convnet import max_pool_2x2
from helpers.interpreted_pool import DTYPES, LAYOUTS, SHAPES, compare, second_derivative
from helpers.interpreter import interpret


def test_the_kernels_pool_as_pytorch_does_in_the_interpreter():
    assert int(interpret("interpreted_pool")) == len(SHAPES) * len(LAYOUTS) * len(DTYPES)


def test_elsewhere_it_is_pytorch_s():
    x = torch.randn(2, 3, 6, 6)
    assert torch.equal(max_pool_2x2(x), F.max_pool2d(x, 2))
    assert max_pool_2x2(torch.randn(2, 3, 5, 7)).shape == (2, 3, 2, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (32, 64, 28, 28), (500, 128, 10, 10)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gpu_pools_as_pytorch_does(shape, layout, dtype):
    compare(shape, layout, dtype, "cuda")


@pytest.mark.gpu
def test_a_gpu_has_second_derivatives_of_it():
    second_derivative("cuda")


@pytest.mark.gpu
def test_the_convnet_is_the_same_by_kernels_and_by_pytorch(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # TF32 differs by more than pooling could
    net = create_model("digits_convnet", norm="none").cuda().to(memory_format=torch.channels_last)
    images = torch.rand(8, 3, 32, 32, device="cuda")
    found = []
    for backend in ("auto", "reference"):
        with ops.use_backend(backend):
            found.append(torch.autograd.grad(net(images).square().sum(), list(net.parameters())))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
