"""Switchable normalization."""

import pytest
import torch

from asrnorm.norms import SwitchNorm

X = torch.randn(6, 8, 5, 4, generator=torch.Generator().manual_seed(3)) * 3 + 1


@pytest.mark.parametrize(
    ("logits", "expected"),
    [([60.0, 0.0, 0.0], "in"), ([0.0, 60.0, 0.0], "ln"), ([0.0, 0.0, 60.0], "bn")],
)
def test_sn_with_one_logit_far_ahead_is_that_norm_with_the_unbiased_variance(logits, expected):
    layer = SwitchNorm(8, eps=0.0)
    with torch.no_grad():
        layer.mean_logits.copy_(torch.tensor(logits))
        layer.var_logits.copy_(torch.tensor(logits))
    mean_in, var_in = X.mean((2, 3), keepdim=True), X.var((2, 3), keepdim=True)
    axis = {"in": None, "ln": 1, "bn": 0}[expected]
    mean, variance = mean_in, var_in
    if axis is not None:
        mean = mean_in.mean(axis, keepdim=True)
        variance = (var_in + mean_in**2).mean(axis, keepdim=True) - mean**2
    torch.testing.assert_close(layer(X), (X - mean) / variance.sqrt(), rtol=1e-4, atol=1e-4)


def test_sn_starts_with_equal_weights():
    layer = SwitchNorm(8)
    torch.testing.assert_close(torch.softmax(layer.mean_logits, 0), torch.full((3,), 1 / 3))
