"""Names, shapes and starting values of every norm's parameters: what the sources say, and what checkpoints rely on.

The values of the fully-connected layers are left out, whose start no source states.
"""

import pytest
import torch

from asrnorm import list_norms
from asrnorm.norms import create_norm

AFFINE = {"weight": 1.0, "bias": 0.0}
# SN's authors start its running variance at zero, where an untrained layer in evaluation could divide by the root of
# eps alone; here it starts as BN's does. Training forgets the start either way.
TRACKED = {"running_mean": 0.0, "running_var": 1.0}
RESCALED = {"gamma_bias": 1.0, "beta_bias": 0.0}

# Per-channel entries and their starting value.
PER_CHANNEL = {
    "bn": AFFINE | TRACKED,
    "bn_test": AFFINE | TRACKED,
    "dsbn": {f"domains.0.{key}": value for key, value in (AFFINE | TRACKED).items()},
    "dson": {f"domains.0.{key}": value for key, value in (AFFINE | TRACKED).items()},
    "in": AFFINE,
    "ln": AFFINE,
    "gn": AFFINE,
    "sn": AFFINE | TRACKED,
    "sn_in_ln": AFFINE,
    "bin": AFFINE | TRACKED | {"gate": 1.0},
    "ilm": AFFINE,
    "none": {},
    "asr": RESCALED,
    "as": RESCALED,
    "ar": RESCALED,
}
# Entries of another length: their length and starting value.
SHARED = {
    "dson": {"gate": (1, 1.0)},
    "sn": {"mean_logits": (3, 1.0), "var_logits": (3, 1.0)},
    "sn_in_ln": {"mean_logits": (2, 1.0), "var_logits": (2, 1.0)},
    "asr": {"lambda_mu": (1, -3.0), "lambda_sigma": (1, -3.0)},
    "as": {"lambda_mu": (1, -3.0), "lambda_sigma": (1, -3.0)},
}


def dense(name, inputs, outputs, bias=True):
    """Shapes of one fully-connected layer."""
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})


def standardization(channels, hidden, bias=True):
    return (
        dense("stan_encoder", channels, hidden, bias)
        | dense("mu_decoder", hidden, channels, bias)
        | dense("sigma_decoder", hidden, channels, bias)
    )


def rescaling(channels, hidden, bias=True, encoders=("rescale_encoder",)):
    networks = dense("beta_decoder", hidden, channels, bias) | dense("gamma_decoder", hidden, channels, bias)
    for encoder in encoders:
        networks |= dense(encoder, channels, hidden, bias)
    return networks


def shapes(layer):
    return {key: tuple(value.shape) for key, value in layer.state_dict().items() if "num_batches" not in key}


@pytest.mark.parametrize("channels", [1, 6, 40])
@pytest.mark.parametrize("name", list_norms())
def test_every_vector_has_its_length_and_start(name, channels):
    state = create_norm(name, channels).state_dict()
    expected = {key: (channels, value) for key, value in PER_CHANNEL[name].items()} | SHARED.get(name, {})
    vectors = {key for key in state if not any(word in key for word in ("encoder", "decoder", "num_batches"))}
    assert vectors == set(expected)
    for key, (length, value) in expected.items():
        torch.testing.assert_close(state[key], torch.full((length,), value), rtol=0, atol=0)


@pytest.mark.parametrize(("channels", "stan", "rescale"), [(1, 1, 1), (6, 3, 1), (40, 20, 2), (64, 32, 4)])
def test_hidden_sizes_of_asr(channels, stan, rescale):
    vectors = {"lambda_mu": (1,), "lambda_sigma": (1,), "gamma_bias": (channels,), "beta_bias": (channels,)}
    networks = standardization(channels, stan) | rescaling(channels, rescale)
    assert shapes(create_norm("asr", channels)) == vectors | networks


def test_options_of_asr_that_change_its_parameters():
    options = {"stan_ratio": 8, "rescale_features": 16, "bias": False, "share_rescale_encoder": False}
    layer = create_norm("asr", 64, **options, gated_rescale=True, per_channel_lambda=True, gate_init=-4.0)
    vectors = {f"lambda_{symbol}": (64,) for symbol in ("mu", "sigma", "beta", "gamma")}
    vectors |= {"gamma_bias": (64,), "beta_bias": (64,)}
    encoders = ("beta_encoder", "gamma_encoder")
    networks = standardization(64, 8, bias=False) | rescaling(64, 16, bias=False, encoders=encoders)
    assert shapes(layer) == vectors | networks
    assert set(layer.lambda_mu.tolist()) == {-3.0}
    assert set(layer.lambda_gamma.tolist()) == set(layer.lambda_beta.tolist()) == {-4.0}
    assert create_norm("asr", 64, gated_rescale=True).lambda_beta.tolist() == [-5.0]


@pytest.mark.parametrize(
    ("channels", "groups", "hidden"),
    [(1, 1, 2), (24, 2, 2), (64, 4, 2), (256, 16, 2), (272, 17, 1), (512, 32, 2), (1024, 64, 4)],
)
def test_hidden_sizes_of_ilm(channels, groups, hidden):
    networks = (
        dense("encoder", groups, hidden, bias=False)
        | dense("weight_decoder", hidden, groups, bias=False)
        | dense("bias_decoder", hidden, groups, bias=False)
    )
    assert shapes(create_norm("ilm", channels)) == {"weight": (channels,), "bias": (channels,)} | networks
