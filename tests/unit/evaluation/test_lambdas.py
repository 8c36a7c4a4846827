"""Lambdas by layer, squashed once."""

import pytest
import torch
from torch import nn

from asrnorm.evaluation import collect_lambdas
from asrnorm.models import create_model
from asrnorm.norms import ASRNorm2d


def test_every_asr_layer_is_found_by_its_name():
    model = create_model("wrn_16_4", norm="asr")
    found = collect_lambdas(model)
    assert set(found) == {name for name, module in model.named_modules() if isinstance(module, ASRNorm2d)}
    assert all(set(values) == {"lambda_mu", "lambda_sigma"} for values in found.values())
    assert all(value == pytest.approx(0.04743, abs=1e-5) for values in found.values() for value in values.values())


def test_per_channel_lambdas_are_averaged_and_gates_included():
    layer = ASRNorm2d(4, per_channel_lambda=True, gated_rescale=True)
    with torch.no_grad():
        layer.lambda_mu.copy_(torch.tensor([-20.0, -20.0, 20.0, 20.0]))
    found = collect_lambdas(nn.ModuleDict({"norm": layer}))["norm"]
    assert found["lambda_mu"] == pytest.approx(0.5, abs=1e-6)
    assert found["lambda_gamma"] == pytest.approx(torch.tensor(-5.0).sigmoid().item())
    assert set(found) == {"lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma"}


def test_other_networks_have_none():
    assert collect_lambdas(create_model("digits_convnet", norm="bn")) == {}
