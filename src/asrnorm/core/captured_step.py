"""A training step or forward pass of a user's own loop, replayed as CUDA graphs.

No call is a trial. The first call of a kind runs the function itself: that creates what optimizers and libraries create
at first use, and shows whether a graph can replace the call. The second is recorded and replayed, later ones replayed.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.utils import _pytree as pytree

from asrnorm.core.cuda_graph import (
    DRAWS_ON_HOST,
    Graph,
    host_generators,
    on_stream,
    record,
    warn_not_captured,
    watch_synchronization,
)
from asrnorm.core.errors import first_line

_DEVICES = ("cuda",)
_MOST_KINDS = 8  # of calls, each with a graph and memory of its own
_OWN_RATES = "it changes learning rates; call the scheduler after it"
_MOST_FAULTS = 3  # first calls that wait or draw for once, as checks of the first batch do
_TOO_MANY = f"its inputs, modes or settings are of more than {_MOST_KINDS} kinds"


def capture(
    function: Callable[..., Any],
    *example: Any,
    model: nn.Module | Sequence[nn.Module] | None = None,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
) -> "CapturedStep":
    """Return a function with the same meaning that replays CUDA graphs, so that the GPU does not wait for the host.

    The first one or two calls are plain steps, the next is recorded. A network is captured as its forward pass without
    gradients. If nothing can be captured (no GPU, `.item()` in the step, several processes), the result calls the
    function itself, and one line of the log says why.

    A replay runs no Python: what the function prints, counts or decides is that of the recorded call. Inputs are nested
    tuples, lists and dicts of tensors on the GPU, the rest of which must not change; other shapes, training modes
    and settings of the optimizer are recorded on their own, up to eight. Learning rates may change at any time.
    Results are copies, to be kept as long as you like; gradients stay in place and are overwritten by the next step.
    Capture again after replacing layers or parameters.

    Args:
        function: a training step from `zero_grad` to `optimizer.step()`, or a network.
        example: inputs like those of the calls; only their kinds and devices are read.
        model: the networks that the function trains or calls.
        optimizer: the optimizers that it calls. On a GPU, SGD and Adam become `fused`, others `capturable`.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> def step(batch):
        ...     optimizer.zero_grad()
        ...     loss = model(batch).square().mean()
        ...     loss.backward()
        ...     optimizer.step()
        ...     return loss
        >>> step = capture(step, torch.ones(4, 2), model=model, optimizer=optimizer)
        >>> bool(step(torch.ones(4, 2)) > step(torch.ones(4, 2))), step.reason
        (True, 'it runs on cpu')
    """
    models = [model] if isinstance(model, nn.Module) else list(model or ())
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer or ())
    if isinstance(function, nn.Module):
        models.append(function)
    return CapturedStep(function, models, optimizers, example)


class CapturedStep:
    """A function with its CUDA graphs, made by `capture`.

    Attributes:
        reason: why every call runs the function itself; `None` while calls are recorded and replayed.
    """

    def __init__(
        self, function: Callable[..., Any], models: list[nn.Module], optimizers: list[Optimizer], example: Any
    ) -> None:
        self._what = getattr(function, "__name__", type(function).__name__)
        self._trains = not isinstance(function, nn.Module)
        self._function = function if self._trains else torch.no_grad()(function)
        self._optimizers = _Optimizers(optimizers)
        self._modules = [module for model in models for module in model.modules()]
        weights = [value for model in models for value in model.parameters()] + self._optimizers.parameters()
        self._parameters = list(dict.fromkeys(weights))
        self._recorded: dict[Hashable, _Recorded | None] = {}
        self._has_warned, self._faults = False, 0
        self.reason: str | None = None
        leaves = pytree.tree_leaves(example)
        self._device = next((v.device for v in (*weights, *leaves) if isinstance(v, Tensor)), torch.device("cpu"))
        try:
            self._check(leaves)
            self._stream = torch.cuda.Stream(self._device)
        except RuntimeError as error:
            self._give_up(error)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return what the function returns, its tensors detached while `reason` is `None`."""
        call = partial(self._function, *inputs, **named)
        if self.reason is not None:
            return call()
        leaves, structure = pytree.tree_flatten((inputs, named))
        try:
            self._check(leaves)
            kind = self._find_kind(leaves, structure)
            if kind in self._recorded and self._recorded[kind] is None:
                self._recorded[kind] = self._record(leaves, structure)
        except Exception as error:  # an error of the function itself comes again from a plain call
            self._give_up(error.__context__ or error)
            return call()
        recorded = self._recorded.get(kind)
        return self._run(call, kind) if recorded is None else self._replay(recorded, leaves)

    def _check(self, leaves: list[Any]) -> None:
        """Raise `RuntimeError` with the reason why a call with these inputs cannot be captured."""
        if self._device.type not in _DEVICES:
            raise RuntimeError(f"it runs on {self._device.type}")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise RuntimeError("it is one of several processes")
        for leaf in leaves:
            if not isinstance(leaf, Hashable):
                raise RuntimeError(f"an input is a {type(leaf).__name__}, neither a tensor nor a constant")
            if isinstance(leaf, Tensor) and leaf.device != self._device:
                raise RuntimeError(f"an input is on {leaf.device}, not on {self._device}")
            if isinstance(leaf, Tensor) and leaf.requires_grad:
                raise RuntimeError("an input requires gradients")
        self._optimizers.check()

    def _find_kind(self, leaves: list[Any], structure: Any) -> Hashable:
        """Return what a graph takes for granted: shapes, constants, modes, settings, addresses."""
        if self._optimizers.were_loaded():
            self._recorded.clear()
        inputs = [(v.shape, v.stride(), v.dtype) if isinstance(v, Tensor) else (type(v), v) for v in leaves]
        device = self._device.type
        return (
            *(structure, *inputs, *self._optimizers.settings()),
            *(torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
            *(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)),
            tuple([module.training for module in self._modules]),
            tuple([value.data_ptr() for value in self._parameters]),
            tuple([value.requires_grad for value in self._parameters]),
            tuple([value.grad is None for value in self._parameters]) if self._trains else None,
        )

    def _run(self, call: Callable[[], Any], kind: Hashable) -> Any:
        """Return what the function returns, and find out whether the next call of this kind can be recorded."""
        self._optimizers.prepare()
        generators = host_generators()
        with on_stream(self._stream), watch_synchronization() as waits, self._optimizers.rates_on_device():
            result = call()
        attached = any(isinstance(value, Tensor) and value.requires_grad for value in pytree.tree_leaves(result))
        problems = {
            "it waits for the GPU, as .item() does": bool(waits),
            DRAWS_ON_HOST: host_generators() != generators,
            _OWN_RATES: self._optimizers.has_own_rates,
            "its optimizer counts on the CPU": self._optimizers.count_on_host(),
            "its result requires gradients; call backward() inside, or detach it": attached and not self._optimizers,
        }
        if any(problems.values()):
            self._faults += 1
            if self._faults == _MOST_FAULTS:
                self._give_up(next(problem for problem, is_found in problems.items() if is_found))
            return result
        if len(self._recorded) < _MOST_KINDS:
            self._recorded[kind] = None
        elif not self._has_warned:
            self._has_warned = True
            warn_not_captured(f"a call of {self._what}", _TOO_MANY)
        return _detach(result)

    def _record(self, leaves: list[Any], structure: Any) -> "_Recorded":
        inputs = [value.clone() if isinstance(value, Tensor) else value for value in leaves]
        arguments, named = pytree.tree_unflatten(inputs, structure)
        before = [(value.grad, None if value.grad is None else value.grad._version) for value in self._parameters]
        try:
            with on_stream(self._stream), self._optimizers.rates_on_device():
                graph = record(lambda: _detach(self._function(*arguments, **named)), self._stream)
            if self._optimizers.has_own_rates:
                raise RuntimeError(_OWN_RATES)
        except Exception:
            for parameter, (gradient, _) in zip(self._parameters, before, strict=True):
                parameter.grad = gradient
            raise
        gradients: list[_Gradient] = []
        for parameter, (gradient, version) in zip(self._parameters, before, strict=True):
            after = parameter.grad
            if after is not gradient:
                gradients.append((parameter, None, after))
            elif after is not None and after._version != version:
                gradients.append((parameter, after, after))
        return _Recorded(graph, inputs, gradients)

    def _replay(self, recorded: "_Recorded", leaves: list[Any]) -> Any:
        with torch.no_grad():
            for own, value in zip(recorded.inputs, leaves, strict=True):
                if isinstance(own, Tensor):
                    own.copy_(value)
            for parameter, read, _ in recorded.gradients:
                if read is not None and parameter.grad is not None and parameter.grad is not read:
                    read.copy_(parameter.grad)
        self._optimizers.upload_rates()
        recorded.graph.replay()
        for parameter, _, after in recorded.gradients:
            parameter.grad = after
        return pytree.tree_map_only(Tensor, torch.clone, recorded.graph.output)

    def _give_up(self, reason: object) -> None:
        self.reason = first_line(reason)
        self._recorded.clear()
        warn_not_captured(self._what, reason)


_Gradient = tuple[nn.Parameter, Tensor | None, Tensor | None]
"""A parameter, the gradient that a graph changes (`None` if it makes a new one), and the gradient that it leaves."""


class _Recorded(NamedTuple):
    """A graph with the tensors that it reads its inputs from, and the gradients that it touches."""

    graph: Graph[Any]
    inputs: list[Any]
    gradients: list[_Gradient]


def _detach(result: Any) -> Any:
    return pytree.tree_map_only(Tensor, torch.detach, result)


class _Optimizers:
    """Optimizers whose updates depend on nothing but tensors of the device."""

    def __init__(self, optimizers: list[Optimizer]) -> None:
        self._own = [_unwrap(optimizer) for optimizer in optimizers]
        self._states = [optimizer.state for optimizer in self._own]
        self._rates: list[Tensor] = []
        self._uploaded: list[float] = []
        self.has_own_rates = False

    def __len__(self) -> int:
        return len(self._own)

    def parameters(self) -> list[nn.Parameter]:
        """Return what they update."""
        return [parameter for group in self._groups() for parameter in group["params"]]

    def check(self) -> None:
        """Raise `RuntimeError` if one takes no learning rate from the device."""
        for optimizer in self._own:
            for group in optimizer.param_groups:
                is_fused = isinstance(optimizer, SGD) and not group["dampening"] and not group["differentiable"]
                if not is_fused and "capturable" not in group:
                    raise RuntimeError(f"{type(optimizer).__name__} with these options has no capturable form")

    def count_on_host(self) -> bool:
        """Tell whether a state holds plain numbers, which a replay would not change."""
        states = [state for optimizer in self._own for state in optimizer.state.values()]
        return any(isinstance(value, int | float) for state in states for value in state.values())

    def settings(self) -> list[Hashable]:
        """Return the settings of every group that a graph takes for granted."""
        free = ("params", "lr", "fused", "foreach", "capturable")
        return [repr([item for item in group.items() if item[0] not in free]) for group in self._groups()]

    def were_loaded(self) -> bool:
        """Tell whether `load_state_dict` has replaced a state since the last call."""
        before, self._states = self._states, [optimizer.state for optimizer in self._own]
        return any(old is not new for old, new in zip(before, self._states, strict=True))

    def prepare(self) -> None:
        """Choose the capturable form of each update, and move or create the state that it needs on the device."""
        for optimizer in self._own:
            optimizer._warned_capturable_if_run_uncaptured = True
            for group in optimizer.param_groups:
                if isinstance(optimizer, SGD | Adam) and not group["differentiable"]:
                    group.update(fused=True, foreach=None)
                    optimizer._step_supports_amp_scaling = True
                if "capturable" in group:
                    group["capturable"] = True
                for parameter in group["params"]:
                    if isinstance(optimizer, SGD) and group["momentum"] and parameter.requires_grad:
                        state = optimizer.state[parameter]
                        if state.get("momentum_buffer") is None:  # zeros are what the first update begins with
                            state["momentum_buffer"] = torch.zeros_like(parameter)
                    for name, value in optimizer.state.get(parameter, {}).items():
                        if isinstance(value, Tensor) and value.device != parameter.device:
                            optimizer.state[parameter][name] = value.to(parameter.device, torch.float32)

    def upload_rates(self) -> None:
        """Copy learning rates that have changed to the device."""
        for index, group in enumerate(self._groups()):
            if index == len(self._rates):
                self._rates.append(torch.zeros((), device=group["params"][0].device))
                self._uploaded.append(math.nan)
            if isinstance(group["lr"], Tensor):
                self._rates[index].copy_(group["lr"])
            elif group["lr"] != self._uploaded[index]:
                self._rates[index].fill_(group["lr"])
                self._uploaded[index] = group["lr"]

    @contextmanager
    def rates_on_device(self) -> Iterator[None]:
        """Make every learning rate a tensor within the block, and note whether the block changes one."""
        self.upload_rates()
        given = [
            (group, group["lr"], own, own._version) for group, own in zip(self._groups(), self._rates, strict=True)
        ]
        for group, _, own, _ in given:
            group["lr"] = own
        try:
            yield
        finally:
            for group, rate, own, version in given:
                is_changed = group["lr"] is not own or own._version != version
                self.has_own_rates |= is_changed
                group["lr"] = float(group["lr"]) if is_changed else rate

    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._own for group in optimizer.param_groups]


def _unwrap(optimizer: Any) -> Optimizer:
    """Return the optimizer inside Accelerate's or Lightning's."""
    inner = getattr(optimizer, "optimizer", None)
    return _unwrap(inner) if isinstance(inner, Optimizer) else optimizer
