"""Optimizer of a run: parameter groups, and the learning rate of each step."""

from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.config import OptimConfig
from asrnorm.norms import ASRNorm2d, BatchInstanceNorm
from asrnorm.schedule import rate_factor as rate_factor
from asrnorm.training.adam import LargeAdam

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
    on_gpu = next(model.parameters()).device.type == "cuda"
    settings: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay, "fused": on_gpu or None}
    if config.name == "adam":
        adam = LargeAdam if on_gpu else torch.optim.Adam
        optimizer: torch.optim.Optimizer = adam(groups, capturable=on_gpu, **settings)
    else:
        optimizer = torch.optim.SGD(groups, momentum=config.momentum, nesterov=config.nesterov, **settings)
    if on_gpu:
        _keep_on_device(optimizer)
    return optimizer


def _keep_on_device(optimizer: torch.optim.Optimizer) -> None:
    """Let the rates and all state be tensors on the device from the start, so that a step can be captured.

    A state of zeros is what the first step would begin with.
    """
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.full((), group["lr"], dtype=torch.float32, device=group["params"][0].device)
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            names = ("exp_avg", "exp_avg_sq") if isinstance(optimizer, torch.optim.Adam) else ("momentum_buffer",)
            for name in names if group.get("momentum", True) else ():
                value = torch.zeros_like(parameter)  # in its memory format, which fused steps ask for
                state[name] = value.copy_(state[name]) if state.get(name) is not None else value
            if isinstance(optimizer, torch.optim.Adam) and "step" not in state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state to save: the same whatever the device."""
    state: dict[str, Any] = optimizer.state_dict()
    for group in state["param_groups"]:
        if isinstance(group["lr"], Tensor):
            group["lr"] = float(group["lr"])
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take up what `optimizer_state` returned, also from another device; the rates are the schedule's to set."""
    groups = [
        {**theirs, **{name: mine[name] for name in ("fused", "capturable") if name in mine}}
        for mine, theirs in zip(optimizer.param_groups, state["param_groups"], strict=True)
    ]
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict({**state, "param_groups": groups})
    if isinstance(rates[0], Tensor):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        _keep_on_device(optimizer)


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
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * group["scale"])
        else:
            group["lr"] = rate * group["scale"]
    return rate


def draw_rates(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, steps: int) -> Tensor:
    """Return the learning rates of a step, one a group, on the CPU."""
    rate = config.lr * rate_factor(config, step, steps)
    return torch.tensor([rate * group["scale"] for group in optimizer.param_groups], dtype=torch.float32)


def copy_rates(optimizer: torch.optim.Optimizer, rates: Tensor) -> None:
    """Set the learning rates from a tensor on the device, without reading it."""
    torch._foreach_copy_([group["lr"] for group in optimizer.param_groups], list(rates.unbind()))
