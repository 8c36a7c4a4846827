"""ASR-Norm, AS and AR: initial state, options, parameters, and hooks on their linear layers."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import asrnorm
from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.norms import ARNorm2d, ASNorm2d, ASRNorm2d, BatchNorm, InstanceNorm, create_norm


def sigmoid(logit):
    return 1 / (1 + math.exp(-logit))


def test_parameters_have_the_public_names():
    assert set(dict(ASRNorm2d(32).named_parameters())) == {
        *(f"{net}.{part}" for net in ("stan_encoder", "mu_decoder", "sigma_decoder") for part in ("weight", "bias")),
        *(
            f"{net}.{part}"
            for net in ("rescale_encoder", "beta_decoder", "gamma_decoder")
            for part in ("weight", "bias")
        ),
        "lambda_mu",
        "lambda_sigma",
        "gamma_bias",
        "beta_bias",
    }
    separate = dict(ASRNorm2d(32, share_rescale_encoder=False, gated_rescale=True, bias=False).named_parameters())
    assert {"beta_encoder.weight", "gamma_encoder.weight", "lambda_beta", "lambda_gamma"} <= set(separate)
    assert not any(name.endswith(".bias") for name in separate)


@pytest.mark.parametrize(
    ("channels", "stan", "rescale"), [(1, 1, 1), (2, 1, 1), (16, 8, 1), (17, 8, 1), (64, 32, 4), (512, 256, 32)]
)
def test_hidden_sizes_are_floored_and_at_least_one(channels, stan, rescale):
    layer = ASRNorm2d(channels)
    assert layer.stan_encoder.out_features == stan
    assert layer.rescale_encoder.out_features == rescale


def test_rescale_features_fixes_the_hidden_size():
    assert ASRNorm2d(64, rescale_features=16).rescale_encoder.out_features == 16


def test_lambdas_start_at_the_sigmoid_of_minus_three_squashed_once():
    layer = ASRNorm2d(8)
    assert torch.equal(layer.lambda_mu.detach(), torch.tensor([-3.0]))
    assert layer.lambdas()["lambda_mu"].item() == pytest.approx(sigmoid(-3))
    gated = ASRNorm2d(8, gated_rescale=True)
    assert gated.lambdas()["lambda_beta"].item() == pytest.approx(sigmoid(-5))
    assert ASRNorm2d(8, per_channel_lambda=True).lambda_sigma.shape == (8,)
    assert "lambda_mu" not in ASRNorm2d(8, residual=False).lambdas()


def test_the_initial_gain_is_about_one_and_a_half_and_with_gates_about_one():
    x = torch.randn(64, 32, 8, 8)
    assert 1.3 < ARNorm2d(32)(x).std().item() < 1.7
    assert 0.98 < ARNorm2d(32, gated_rescale=True)(x).std().item() < 1.02


def test_closed_lambdas_give_instance_norm():
    x = torch.randn(4, 8, 6, 6, dtype=torch.float64)
    layer = ASNorm2d(8, lambda_init=-60.0, dtype=torch.float64, eps=1e-12)
    torch.testing.assert_close(layer(x), InstanceNorm(8, dtype=torch.float64, eps=1e-12)(x))


def test_batch_statistics_with_closed_lambdas_give_batch_norm_in_both_modes():
    options = {"statistics": "batch", "lambda_init": -60.0, "eps": 1e-12, "dtype": torch.float64}
    ours, theirs = ASNorm2d(8, **options), BatchNorm(8, eps=1e-12, dtype=torch.float64)
    for _ in range(3):
        x = 2 + 3 * torch.randn(4, 8, 6, 6, dtype=torch.float64)
        torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_layer_statistics_are_those_over_all_channels_of_the_sample():
    x = 2 + 3 * torch.randn(4, 8, 6, 6, dtype=torch.float64)
    layer = ASNorm2d(8, statistics="layer", lambda_init=-60.0, eps=1e-12, dtype=torch.float64)
    torch.testing.assert_close(layer(x), torch.nn.functional.layer_norm(x, x.shape[1:], eps=1e-12))


def test_without_the_residual_the_learned_statistics_stand_alone():
    layer = ASNorm2d(4, residual=False)
    torch.nn.init.zeros_(layer.sigma_decoder.weight)
    torch.nn.init.constant_(layer.sigma_decoder.bias, 2.0)
    torch.nn.init.zeros_(layer.mu_decoder.weight)
    torch.nn.init.constant_(layer.mu_decoder.bias, 1.0)
    x = torch.randn(2, 4, 3, 3)
    torch.testing.assert_close(layer(x), (x - 1) / (2 + layer.eps))


def test_a_dead_learned_sigma_without_residual_explodes_as_the_paper_says():
    layer = ASNorm2d(4, residual=False)
    torch.nn.init.constant_(layer.sigma_decoder.bias, -1e3)
    assert layer(torch.randn(2, 4, 3, 3)).abs().max() > 1e3
    assert ASNorm2d(4)(torch.randn(2, 4, 3, 3)).abs().max() < 1e2


@pytest.mark.parametrize("statistics", ["instance", "layer"])
def test_the_learned_mean_stays_within_reach_of_the_sample(statistics):
    layer = ASNorm2d(4, statistics=statistics, lambda_init=1.0, eps=0.1, dtype=torch.float64)
    torch.nn.init.constant_(layer.mu_decoder.bias, 1e4)
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    axes = (2, 3) if statistics == "instance" else (1, 2, 3)
    var, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    expected = (mean + 32 * var / (var + 0.1).sqrt())[..., 0, 0].expand(3, 4)
    torch.testing.assert_close(layer.learned_statistics(x)[0], expected)
    torch.nn.init.constant_(layer.mu_decoder.bias, 10.0)  # nearer than that the equation holds as it is
    gate = torch.sigmoid(layer.lambda_mu)
    learned = layer.mu_decoder(layer.stan_encoder(x.mean((2, 3))).relu())
    expected = gate * learned + (1 - gate) * mean[..., 0, 0]
    torch.testing.assert_close(layer.learned_statistics(x)[0], expected)


@pytest.mark.parametrize("value", [0.0, 1.0, -255.0])
@pytest.mark.parametrize("eps", [1e-5, 0.1])
def test_uniform_images_are_not_amplified_by_layers_in_a_row(value, eps):
    layers = torch.nn.Sequential(*[ASRNorm2d(16, eps=eps) for _ in range(5)])
    x = torch.full((2, 16, 6, 6), value).requires_grad_()
    y = layers(x)
    assert y.abs().max() <= 1 + 1e-3  # the learned bias, a tanh: what an image without contrast consists of
    y.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_maps_of_a_single_position_are_standardized_over_the_channels():
    x = 3 + 2 * torch.randn(4, 8, dtype=torch.float64)
    layer = ASNorm2d(8, lambda_init=-60.0, eps=1e-12, dtype=torch.float64)
    expected = torch.nn.functional.layer_norm(x, (8,), eps=1e-12)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x[..., None, None])[..., 0, 0], expected)
    layers = torch.nn.Sequential(*[ASRNorm2d(32) for _ in range(8)])
    assert layers(torch.randn(16, 32, 1, 1)).abs().max() < 100


def test_reset_parameters_gives_a_fresh_layer():
    layer = ASRNorm2d(8, statistics="batch", gated_rescale=True)
    layer(torch.randn(4, 8, 5, 5))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(1.0)
    layer.reset_parameters()
    assert layer.lambda_mu.item() == -3.0
    assert layer.lambda_gamma.item() == -5.0
    assert torch.equal(layer.gamma_bias.detach(), torch.ones(8))
    assert torch.equal(layer.running_mean, torch.zeros(8))
    assert layer.stan_encoder.weight.abs().max() < 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"num_features": 0},
        {"statistics": "group"},
        {"activation": "gelu"},
        {"rescale": False, "gated_rescale": True},
        {"residual": False, "statistics": "batch"},
        {"stan_ratio": 0},
        {"eps": -1.0},
        {"rescale_features": 0},
        {"lambda_init": math.nan},
        {"gate_init": math.inf},
    ],
    ids=str,
)
def test_invalid_options_are_rejected(options):
    with pytest.raises(InputError):
        ASRNorm2d(**{"num_features": 8, **options})


def test_the_halves_take_the_options_that_have_an_effect_on_them():
    with pytest.raises(TypeError):
        ASNorm2d(8, rescale_ratio=4)
    with pytest.raises(TypeError):
        ARNorm2d(8, standardize=True)
    assert repr(ASNorm2d(8, residual=False)).startswith("ASNorm2d(\n  8, residual=False")
    assert isinstance(ARNorm2d(8), ASRNorm2d)


def test_repr_shows_what_differs_from_the_defaults():
    assert (
        ASRNorm2d(8, gated_rescale=True, activation="relu").extra_repr() == "8, gated_rescale=True, activation='relu'"
    )
    layer = ASRNorm2d(8, lambda_init=0.0, gate_init=-4.0, bias=False, per_channel_lambda=True)
    assert layer.extra_repr() == "8, bias=False, per_channel_lambda=True, lambda_init=0.0, gate_init=-4.0"
    assert ASRNorm2d(1).extra_repr() == "1"
    small = ASRNorm2d(16, stan_ratio=4, rescale_ratio=8, rescale_features=7, per_channel_lambda=True)
    sizes = "stan_ratio=4, rescale_ratio=8, rescale_features=7, per_channel_lambda=True"
    assert small.extra_repr() == copy.deepcopy(small).extra_repr() == f"16, {sizes}"


def test_learned_statistics_do_not_update_running_ones():
    layer = ASRNorm2d(4, statistics="batch")
    x = torch.randn(6, 4, 3, 3)
    before = {name: value.clone() for name, value in layer.named_buffers()}
    layer.learned_statistics(x)
    assert all(torch.equal(value, before[name]) for name, value in layer.named_buffers())
    with pytest.raises(InputError):
        layer.learned_statistics(torch.randn(2, 5, 3, 3))


@pytest.mark.parametrize("norm", ["asr", "as", "ar", "in", "gn", "ln", "sn", "sn_in_ln"])
def test_forward_applies_relu_and_rejects_other_activations(norm):
    layer, x = create_norm(norm, 32), torch.randn(2, 32, 4, 4)
    torch.testing.assert_close(layer(x, activation="relu"), torch.relu(layer(x)))
    with pytest.raises(InputError):
        layer(x, activation="gelu")


@pytest.mark.parametrize(
    ("features", "options"),
    [(8.0, {}), ("8", {}), (8, {"stan_ratio": 2.5}), (8, {"rescale_ratio": "2"}), (8, {"rescale_features": 1.5})],
)
def test_sizes_that_are_not_whole_numbers_are_rejected(features, options):
    with pytest.raises(InputTypeError):
        ASRNorm2d(features, **options)


def test_numpy_integers_are_accepted():
    assert ASRNorm2d(np.int64(8), stan_ratio=np.int32(2)).stan_encoder.out_features == 4


@pytest.mark.parametrize("start", [-3, np.float32(-3), np.int64(-3)])
def test_initial_logits_may_be_integers(start):
    layer = ASRNorm2d(8, gated_rescale=True, lambda_init=start, gate_init=start)
    for name in ("lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma"):
        assert torch.equal(getattr(layer, name).detach(), torch.tensor([-3.0]))


pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
X = torch.randn(4, 8, 5, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("norm", "part"), [("asr", "stan_encoder"), ("ilm", "encoder")])
def test_a_pruned_weight_is_trained_through_its_mask(norm, part):
    layer = asrnorm.create_norm(norm, 8)
    linear = getattr(layer, part)
    prune.l1_unstructured(linear, "weight", 0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    before = layer(X)
    for _ in range(2):  # a second backward goes through the weight of the second forward
        optimizer.zero_grad()
        (layer(X) * torch.linspace(0, 1, 5)).sum().backward()
        optimizer.step()
    assert not torch.allclose(layer(X), before)
    assert torch.equal(linear.weight, linear.weight_orig * linear.weight_mask)


def test_spectral_and_weight_norm_are_in_force():
    layer = asrnorm.create_norm("asr", 8).train()
    with torch.no_grad():
        layer.mu_decoder.weight.mul_(20)
    nn.utils.spectral_norm(layer.mu_decoder)
    for _ in range(30):
        layer(X)
    assert float(torch.linalg.matrix_norm(layer.mu_decoder.weight.detach(), 2)) == pytest.approx(1, abs=0.05)
    nn.utils.weight_norm(layer.sigma_decoder)
    with torch.no_grad():
        layer.sigma_decoder.weight_g.mul_(3)
    before = float(layer.sigma_decoder.weight.detach().norm())
    layer(X)
    assert float(layer.sigma_decoder.weight.detach().norm()) == pytest.approx(3 * before, rel=1e-5)


def test_a_parametrized_weight_is_taken():
    layer = asrnorm.create_norm("asr", 8)
    before = layer(X)
    parametrizations.weight_norm(layer.mu_decoder)
    torch.testing.assert_close(layer(X), before)


class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize("other", [Adapted(8, 4), nn.Sequential(nn.Linear(8, 4))])
def test_layers_other_than_plain_linear_ones_are_rejected(other):
    layer = asrnorm.create_norm("asr", 8)
    layer.stan_encoder = other
    with pytest.raises(InputTypeError):
        layer(X)
