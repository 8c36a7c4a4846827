"""Optimizer of a run: parameter groups, and the learning rate of each step."""

import torch
from torch import nn

from asrnorm.config import OptimConfig
from asrnorm.norms import ASRNorm2d, BatchInstanceNorm
from asrnorm.schedule import rate_factor as rate_factor

_LAMBDA = "lambda_"


def create_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """Return the optimizer of a model's trainable parameters.

    The lambdas of ASR-Norm are a group of their own where `decay_lambdas` is off, which spares them the weight decay;
    the gates of BIN always are one, with a learning rate of `gate_lr` times the others' and no decay.

    Example:
        >>> from asrnorm.models import create_model
        >>> model = create_model("digits_convnet", norm="asr", channels=(2, 2), hidden=2)
        >>> optimizer = create_optimizer(model, OptimConfig(weight_decay=0.1, decay_lambdas=False))
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups]
        [(38, 0.1), (4, 0.0)]
    """
    groups = parameter_groups(model, config)
    if config.name == "adam":
        return torch.optim.Adam(groups, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, weight_decay=config.weight_decay
    )


def parameter_groups(model: nn.Module, config: OptimConfig) -> list[dict[str, object]]:
    """Return the groups that an optimizer takes; `scale` is a group's learning rate over the run's."""
    lambdas: dict[int, nn.Parameter] = {}
    gates: dict[int, nn.Parameter] = {}
    for module in model.modules():
        if isinstance(module, ASRNorm2d) and not config.decay_lambdas:
            own = module.named_parameters(recurse=False)
            lambdas |= {id(parameter): parameter for name, parameter in own if name.startswith(_LAMBDA)}
        if isinstance(module, BatchInstanceNorm):
            gates[id(module.gate)] = module.gate
    special = {**lambdas, **gates}
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rest = [parameter for parameter in trainable if id(parameter) not in special]
    groups: list[dict[str, object]] = [{"params": rest, "scale": 1.0}]
    if lambdas:
        groups.append({"params": list(lambdas.values()), "scale": 1.0, "weight_decay": 0.0})
    if gates:
        groups.append({"params": list(gates.values()), "scale": config.gate_lr, "weight_decay": 0.0})
    return groups


def set_rate(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, steps: int) -> float:
    """Set the learning rate of a step in every group and return that of the first."""
    rate = config.lr * rate_factor(config, step, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]
    return rate
