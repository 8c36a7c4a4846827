"""The curve of weight decay alone is what PyTorch's optimizers do to a parameter that the loss does not touch."""

import math

import pytest
import torch

from asrnorm.core.config import OptimConfig
from asrnorm.norms import ASRNorm2d
from asrnorm.recipes import recipe
from asrnorm.studies.decay import decay_curve, decay_logit
from asrnorm.training.optim import create_optimizer, set_rate

STEPS = 60
CONFIGS = {
    "sgd": OptimConfig(lr=0.1, momentum=0.0, weight_decay=0.05),
    "momentum": OptimConfig(lr=0.1, momentum=0.9, weight_decay=0.05, schedule="step"),
    "nesterov": OptimConfig(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05, schedule="cosine"),
    "adam": OptimConfig(name="adam", lr=0.05, weight_decay=0.01),
    "warm-up": OptimConfig(lr=0.1, weight_decay=0.05, warmup_steps=20, schedule="step"),
    "adam, warm-up": OptimConfig(name="adam", lr=0.05, weight_decay=0.01, warmup_steps=7),
    "rest waits": OptimConfig(lr=0.1, weight_decay=0.05, norm_warmup_steps=30, norm_lr=5.0, decay_networks=False),
    "faster": OptimConfig(lr=0.1, momentum=0.9, weight_decay=0.05, schedule="step", lambda_lr=3.0),
    "adam, slower": OptimConfig(name="adam", lr=0.05, weight_decay=0.01, lambda_lr=0.5),
    "spared": OptimConfig(lr=0.1, weight_decay=0.05, decay_lambdas=False),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_equal_to_the_optimizer_of_a_run(name):
    config = CONFIGS[name]
    layer = ASRNorm2d(2, dtype=torch.float64)
    optimizer = create_optimizer(layer, config)
    logits = [layer.lambda_mu.item()]
    for step in range(STEPS):
        set_rate(optimizer, config, step, STEPS)
        for parameter in layer.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        logits.append(layer.lambda_mu.item())
    assert list(decay_logit(config, STEPS, -3.0)) == pytest.approx(logits, rel=1e-9)
    assert (logits[-1] == -3.0) == (name == "spared")


def test_the_cifar_recipe_draws_a_lambda_to_a_half_without_any_gradient():
    config = recipe("cifar10c.ada_asr")
    epoch = 391
    curve = decay_curve(config, "lambda_sigma", [0, 10 * epoch, 20 * epoch, 50 * epoch, 200 * epoch])
    assert [round(value, 3) for value in curve] == [0.047, 0.395, 0.485, 0.5, 0.5]
    shorter = recipe("cifar10c.erm_asr", steps=36 * epoch)
    assert round(decay_curve(shorter, "lambda_mu", [36 * epoch])[0], 3) == 0.478


def test_on_pacs_the_effect_is_small_and_gates_start_lower():
    config = recipe("pacs.rsc_asr", source="photo")
    for name, start in (("lambda_mu", -3.0), ("lambda_gamma", -5.0)):
        first, last = decay_curve(config, name, [0, config.steps])
        assert first == pytest.approx(1 / (1 + math.exp(-start)))
        assert first < last < 1.1 * first


def test_another_start_and_no_decay_are_followed():
    config = recipe("cifar10c.erm_asr", **{"norm.lambda_init": -1.0, "optim.decay_lambdas": False})
    assert decay_curve(config, "lambda_mu", [0, 100]) == pytest.approx([1 / (1 + math.e)] * 2)
