"""The functions behind ASR-Norm, one equation at a time."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from asrnorm import ops
from asrnorm.norms import reference

DOUBLE = torch.float64


def dense(out_features, in_features, bias=True):
    weight = torch.randn(out_features, in_features, dtype=DOUBLE)
    return ops.Dense(weight, torch.randn(out_features, dtype=DOUBLE) if bias else None)


def nets(channels=6, hidden=3):
    standardize = ops.StandardizeNets(
        dense(hidden, channels),
        dense(channels, hidden),
        dense(channels, hidden),
        torch.tensor([0.3], dtype=DOUBLE),
        torch.tensor([-0.4], dtype=DOUBLE),
    )
    rescale = ops.RescaleNets(
        dense(hidden, channels), dense(hidden, channels), dense(channels, hidden), dense(channels, hidden)
    )
    return standardize, rescale


def test_channel_stats_are_the_biased_ones():
    x = torch.randn(3, 4, 5, 6, dtype=DOUBLE)
    mean, std = ops.channel_stats(x, eps=0.0)
    torch.testing.assert_close(mean, x.mean((2, 3)))
    torch.testing.assert_close(std, x.std((2, 3), correction=0))


def test_a_constant_channel_has_the_root_of_eps_and_a_finite_gradient():
    x = torch.full((1, 1, 4, 4), 3.0, requires_grad=True)
    _, std = ops.channel_stats(x, eps=1e-4)
    std.sum().backward()
    assert std.item() == pytest.approx(1e-2)
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_of_half_precision_input_are_float32(dtype):
    mean, std = ops.channel_stats(torch.randn(2, 3, 64, 64).to(dtype), eps=1e-5)
    assert mean.dtype == std.dtype == torch.float32


def test_the_variance_survives_a_large_mean():
    x = 1e4 + torch.randn(2, 3, 32, 32)
    _, std = ops.channel_stats(x, eps=0.0)
    torch.testing.assert_close(std, x.double().std((2, 3), correction=0).float(), rtol=1e-3, atol=0)


@given(parts=st.integers(1, 5), size=st.integers(1, 7), shift=st.floats(-1e3, 1e3), seed=st.integers(0, 99))
def test_pooled_moments_are_those_of_the_whole(parts, size, shift, seed):
    x = shift + torch.randn(parts, size, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    mean, variance = ops.pool_moments(x.mean(1), x.var(1, correction=0), dim=0)
    torch.testing.assert_close(mean[0], x.mean(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(variance[0], x.var(correction=0), rtol=1e-6, atol=1e-9)


def test_standardization_is_a_weighted_sum_of_learned_and_native_statistics():
    standardize, _ = nets()
    mean, std = torch.randn(2, 6, dtype=DOUBLE), torch.rand(2, 6, dtype=DOUBLE)
    mu, sigma = ops.learned_standardization(mean, std, standardize)
    gate_mu, gate_sigma = torch.sigmoid(standardize.lambda_mu), torch.sigmoid(standardize.lambda_sigma)

    def learned(statistic, decoder):
        return F.linear(F.relu(F.linear(statistic, *standardize.encoder)), *decoder)

    torch.testing.assert_close(mu, gate_mu * learned(mean, standardize.mu_decoder) + (1 - gate_mu) * mean)
    expected = gate_sigma * F.relu(learned(std, standardize.sigma_decoder)) + (1 - gate_sigma) * std
    torch.testing.assert_close(sigma, expected)


def test_learned_sigma_is_never_negative_and_mu_may_be():
    standardize, _ = nets()
    alone = standardize._replace(lambda_mu=None, lambda_sigma=None)
    mu, sigma = ops.learned_standardization(torch.randn(64, 6, dtype=DOUBLE), torch.rand(64, 6, dtype=DOUBLE), alone)
    assert sigma.min() == 0
    assert mu.min() < 0


def test_rescaling_is_bounded_around_its_biases():
    _, rescale = nets()
    gamma_bias, beta_bias = torch.randn(6, dtype=DOUBLE), torch.randn(6, dtype=DOUBLE)
    mean, std = 100 * torch.randn(64, 6, dtype=DOUBLE), 100 * torch.rand(64, 6, dtype=DOUBLE)
    gamma, beta = ops.learned_rescaling(mean, std, rescale, gamma_bias, beta_bias)
    assert ((gamma - gamma_bias >= 0) & (gamma - gamma_bias <= 1)).all()
    assert ((beta - beta_bias).abs() <= 1 + 1e-9).all()
    closed = rescale._replace(lambda_beta=torch.tensor([-50.0]), lambda_gamma=torch.tensor([-50.0]))
    gamma, beta = ops.learned_rescaling(mean, std, closed, gamma_bias, beta_bias)
    torch.testing.assert_close(gamma, gamma_bias.expand_as(gamma))
    torch.testing.assert_close(beta, beta_bias.expand_as(beta))


def test_relu_rides_along():
    standardize, rescale = nets()
    x = torch.randn(2, 6, 5, 5, dtype=DOUBLE)
    ones, zeros = torch.ones(6, dtype=DOUBLE), torch.zeros(6, dtype=DOUBLE)
    plain = ops.asr_norm(x, standardize, rescale, ones, zeros)
    fused = ops.asr_norm(x, standardize, rescale, ones, zeros, activation="relu")
    assert torch.equal(fused, plain.relu())
    assert plain.min() < 0


def test_without_networks_it_is_instance_norm():
    x = torch.randn(3, 6, 8, 8, dtype=DOUBLE)
    gain, bias = torch.randn(6, dtype=DOUBLE), torch.randn(6, dtype=DOUBLE)
    y = ops.asr_norm(x, None, None, gain, bias, eps=1e-12)
    torch.testing.assert_close(y, F.instance_norm(x, weight=gain, bias=bias, eps=1e-12))


def test_without_networks_and_without_the_outer_eps_it_is_instance_norm():
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    gain, bias = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    y = reference.asr_norm(x, None, None, gain, bias, eps=0.1, eps_out=0.0)
    torch.testing.assert_close(y, F.instance_norm(x, weight=gain, bias=bias, eps=0.1))


def test_the_variance_of_an_instance_is_unbiased_and_the_layer_pools_it():
    found = reference.sample_moments(torch.tensor([[4.0]]), torch.tensor([[1.0]]), 2)
    assert [variance.item() for _, variance in found] == [2.0, 2.0]


def test_switched_vectors_mix_means_and_variances_by_their_own_weights():
    one, three, zero = torch.ones(1), torch.full((1,), 3.0), torch.zeros(1)
    moments, logits = [(one, one), (three, three)], torch.tensor([90.0, 0.0])
    mean, std, *_ = reference.switched_vectors(moments, torch.zeros(2), logits, zero, zero, eps=0.0)
    assert (mean.item(), std.item()) == (2.0, 1.0)
