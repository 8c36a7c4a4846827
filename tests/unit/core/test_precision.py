"""The precision of a run, where it is switched on and off again."""

import pytest
import torch

from asrnorm.core.precision import autocast, products, weight_dtype

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("precision", "device", "inside"),
    [
        ("tf32", CUDA, "high"),
        ("tf32", CPU, "highest"),
        ("float32", CUDA, "highest"),
        ("bfloat16", CUDA, "highest"),
        ("float64", CUDA, "highest"),
    ],
)
def test_products_take_tf32_only_where_it_is_asked_for(precision, device, inside):
    assert torch.get_float32_matmul_precision() == "highest"
    with products(precision, device):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == "highest"


def test_they_are_as_before_after_an_error():
    with pytest.raises(RuntimeError, match="stop"), products("tf32", CUDA):
        raise RuntimeError("stop")
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("precision", "dtype"), [("bfloat16", torch.bfloat16), ("tf32", torch.float32)])
def test_only_bfloat16_is_autocast(precision, dtype):
    layer = torch.nn.Linear(3, 2, dtype=weight_dtype(precision))
    with autocast(precision, CPU):
        assert layer(torch.zeros(1, 3)).dtype == dtype


@pytest.mark.gpu
def test_products_on_a_gpu_have_fewer_digits_and_no_fewer():
    a, b = (torch.randn(256, 256, dtype=torch.float64, device="cuda") for _ in range(2))
    exact = a @ b

    def error(precision):
        with products(precision, CUDA):
            return float((a.float() @ b.float() - exact).abs().max())

    assert error("float32") < 1e-3 < error("tf32") < 0.2
