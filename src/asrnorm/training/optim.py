"""Optimizer of a run: parameter groups, learning rates of each step, state that moves between devices, and Adam.

On a GPU, Adam is PyTorch's fused step for small tensors and one Triton launch for all large ones; both compute the same
update.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from asrnorm.conversion.replace import original_of
from asrnorm.core.config import OptimConfig
from asrnorm.core.errors import InputError
from asrnorm.core.schedule import rate_factor
from asrnorm.core.settings import BACKEND_VARIABLE
from asrnorm.models.base import classifier_head
from asrnorm.norms import ASRNorm2d, BatchInstanceNorm, DomainMixedNorm

_LAMBDA = "lambda_"
_STATIC = ("gamma_bias", "beta_bias")
_NOT_RESTORED = ("fused", "capturable", "scale", "waits")  # of a group: set by device and config, not by a checkpoint


def create_optimizer(model: nn.Module, config: OptimConfig, beside: Sequence[nn.Module] = ()) -> torch.optim.Optimizer:
    """Return the optimizer of a model's trainable parameters, in the groups of `parameter_groups`.

    Networks `beside` the model, such as a method's second head, are trained as its classifier is.
    """
    groups = parameter_groups(model, config, beside)
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


class _Treatment(NamedTuple):
    """How a parameter is trained: its learning rate relative to the run's, with weight decay, with a late start."""

    scale: float
    decays: bool
    waits: bool


def parameter_groups(
    model: nn.Module, config: OptimConfig, beside: Sequence[nn.Module] = ()
) -> list[dict[str, object]]:
    """Return the groups for an optimizer, one for each treatment.

    The lambdas of ASR-Norm are a group of their own if `decay_lambdas` is off or `lambda_lr` is set; the gates of BIN
    and DSON always are one, with `gate_lr` times the learning rate and no decay. So are, if these options are set, the
    small networks (`norm_lr`, `decay_networks`), the classifier and the networks beside the model (`head_lr`), and the
    parameters that `norm_warmup_steps` freezes at first.

    `scale` is a group's learning rate relative to the run's. A group that `waits` has a rate of 0 for
    `norm_warmup_steps`; its gradients are computed all the same, so that captured steps stay valid.
    """
    plain = _Treatment(1.0, True, config.norm_warmup_steps > 0)
    special = _special_treatments(model, config, beside)
    groups: dict[_Treatment, list[nn.Parameter]] = {plain: []}
    for parameter in (parameter for network in (model, *beside) for parameter in network.parameters()):
        if parameter.requires_grad:
            groups.setdefault(special.get(id(parameter), plain), []).append(parameter)
    return [
        {"params": own, "scale": how.scale, "waits": how.waits, **({} if how.decays else {"weight_decay": 0.0})}
        for how, own in groups.items()
        if own
    ]


def _special_treatments(
    model: nn.Module, config: OptimConfig, beside: Sequence[nn.Module] = ()
) -> dict[int, _Treatment]:
    """The treatment of parameters in norms and in classifiers, by `id`."""
    found: dict[int, _Treatment] = {}
    head = classifier_head(model)
    if head is None and config.head_lr != 1:
        raise InputError(f"optim.head_lr: {type(model).__name__} has no linear layer with an output for each class")
    for part in (*beside, *([] if head is None else [head])):
        found |= {id(parameter): _Treatment(config.head_lr, True, False) for parameter in part.parameters()}
    converted = [module for module in model.modules() if original_of(module) is not None]
    found |= {id(p): _Treatment(1.0, True, False) for module in converted for p in module.parameters()}
    waits = config.norm_warmup_steps > 0
    for module in (module for network in (model, *beside) for module in network.modules()):
        if isinstance(module, ASRNorm2d):
            found |= {id(value): _treat_asr(name, config) for name, value in module.named_parameters()}
        if isinstance(module, BatchInstanceNorm | DomainMixedNorm):
            found[id(module.gate)] = _Treatment(config.gate_lr, False, waits and id(module.gate) not in found)
    return found


def _treat_asr(name: str, config: OptimConfig) -> _Treatment:
    if name.startswith(_LAMBDA):
        return _Treatment(config.lambda_lr, config.decay_lambdas, False)
    return _Treatment(1.0 if name in _STATIC else config.norm_lr, config.decay_networks, False)


def set_rate(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, steps: int) -> None:
    """Set the learning rate of a step in every group."""
    for group, rate in zip(optimizer.param_groups, _rates(optimizer, config, step, steps), strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def draw_rates(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, steps: int) -> Tensor:
    """Return the learning rates of a step, one per group, on the CPU."""
    return torch.tensor(_rates(optimizer, config, step, steps), dtype=torch.float32)


def copy_rates(optimizer: torch.optim.Optimizer, rates: Tensor) -> None:
    """Set the learning rates from a tensor on the device, which the host does not read."""
    torch._foreach_copy_([group["lr"] for group in optimizer.param_groups], list(rates.unbind()))


def _rates(optimizer: torch.optim.Optimizer, config: OptimConfig, step: int, steps: int) -> list[float]:
    return [
        config.lr * rate_factor(config, step, steps, waits=group["waits"]) * group["scale"]
        for group in optimizer.param_groups
    ]


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the state to save, the same for every device."""
    state: dict[str, Any] = optimizer.state_dict()
    for group in state["param_groups"]:
        if isinstance(group["lr"], Tensor):
            group["lr"] = float(group["lr"])
    return state


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Restore what `optimizer_state` returned, on any device; the schedule sets the rates."""
    groups = [
        {**theirs, **{name: mine[name] for name in _NOT_RESTORED if name in mine}}
        for mine, theirs in zip(optimizer.param_groups, state["param_groups"], strict=True)
    ]
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict({**state, "param_groups": groups})
    if isinstance(rates[0], Tensor):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        _keep_on_device(optimizer)


def _keep_on_device(optimizer: torch.optim.Optimizer) -> None:
    """Make rates and state tensors on the device from the start, so that a step can be captured.

    A state of zeros is what the first step would begin with.
    """
    is_adam = isinstance(optimizer, torch.optim.Adam)
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = torch.full((), group["lr"], dtype=torch.float32, device=group["params"][0].device)
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            for name in ("exp_avg", "exp_avg_sq") if is_adam else ("momentum_buffer",) if group["momentum"] else ():
                value = torch.zeros_like(parameter)  # in its memory format, which fused steps require
                state[name] = value.copy_(state[name]) if state.get(name) is not None else value
            if is_adam and "step" not in state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)


_LARGE = 1 << 13  # values from which a block takes longer than a launch
_MOST_TENSORS = 16  # of a launch; a network of more has blocks enough for torch's step
OLDEST = (7, 0)
"""Compute capability from which Triton makes code."""


class LargeAdam(torch.optim.Adam):
    """`torch.optim.Adam`, `fused` and `capturable`, its rates tensors; state and results are Adam's."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Do a step, the large tensors first."""
        large = [[value for value in group["params"] if self._is_large(value)] for group in self.param_groups]
        every = [value for values in large for value in values]
        is_small_network = 0 < len(every) <= _MOST_TENSORS
        kernel = _find_kernel(every[0].device) if is_small_network and closure is None else None
        if kernel is None:
            return super().step(closure)
        gradients = [value.grad for value in every]
        for group, values in zip(self.param_groups, large, strict=True):
            if values:
                self._take(kernel, group, values)
        for value in every:
            value.grad = None  # torch's step leaves it alone
        super().step()
        for value, gradient in zip(every, gradients, strict=True):
            value.grad = gradient
        return None

    def _take(self, kernel: Callable[..., None], group: dict[str, Any], values: list[Tensor]) -> None:
        states = [self.state[value] for value in values]
        means, squares, steps = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
        gradients = [value.grad for value in values]
        options = {name: group[name] for name in ("betas", "eps", "weight_decay")}
        kernel(values, gradients, means, squares, steps, group["lr"], **options)
        torch._foreach_add_(steps, 1)

    def _is_large(self, parameter: Tensor) -> bool:
        gradient = parameter.grad
        if gradient is None or parameter.numel() < _LARGE or parameter.dtype != torch.float32:
            return False
        state = self.state[parameter]
        tensors = (gradient, state["exp_avg"], state["exp_avg_sq"])
        dense = parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)
        return dense and all(tensor.stride() == parameter.stride() for tensor in tensors)


@lru_cache(maxsize=16)
def _find_kernel(device: torch.device) -> Callable[..., None] | None:
    """The Triton kernel where Triton is available; otherwise `None`, for torch's step, which computes the same."""
    if os.environ.get(BACKEND_VARIABLE) == "reference" or torch.cuda.get_device_capability(device) < OLDEST:
        return None
    try:
        from asrnorm.kernels.adam import adam_steps
    except Exception:  # a broken binary wheel may raise anything
        return None
    return adam_steps
