"""The registry of norm layers and what they have in common.

The contract: `Layer(num_features, *, eps=..., device=None, dtype=None, ...)`, so that any of them serves as a
backbone's `norm_layer=`; input `(n, c, ...)` with any number of spatial axes; output of the same shape, dtype and
memory format.
"""

import inspect
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.registry import Registry
from asrnorm.norms import reference

NORMS: Registry[Callable[..., nn.Module]] = Registry("norm")

ProcessSum = Callable[[Tensor], Tensor]
"""Sums a tensor over the processes of a run; differentiable."""

_NOT_SHOWN = ("self", "num_features", "device", "dtype")
_PACKED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class NormLayer(nn.Module):
    """Input checks and the affine pair that conversion reads; every norm of the registry derives from it.

    Attributes:
        process_sum: set where several processes share a batch, so that its statistics are those of all of it.
        fuses_relu: whether `forward` takes `activation="relu"`.
        input_rank: the number of axes that an input must have; set where the layer replaces one that tells a batch from
            a single image by it.
    """

    num_features: int
    fuses_relu = False
    input_rank: int | None = None
    process_sum: ProcessSum | None = None

    def check_input(self, x: Tensor) -> None:
        """Refuse what the layer cannot normalize, in one line that names it.

        Raises:
            InputTypeError: not a floating-point tensor.
            InputError: wrong rank, channel count, or empty maps.
        """
        if not isinstance(x, Tensor):
            hint = "; torch.fx: let the tracer take norm layers as leaves" if type(x).__name__ == "Proxy" else ""
            raise InputTypeError(f"{self.label()}: expected a tensor, got {type(x).__name__}{hint}")
        if not torch.is_floating_point(x):
            raise InputTypeError(
                f"{self.label()}: expected floating-point input, got {x.dtype}; convert it with x.float()"
            )
        if x.ndim < 2:
            raise InputError(f"{self.label()}: expected input (N, C, ...), got shape {_show(x)}")
        if self.input_rank is not None and x.ndim != self.input_rank:
            raise InputError(
                f"{self.label()}: expected input of {self.input_rank} axes, as the layer that it replaces, got shape "
                f"{_show(x)}; for a single image add the batch axis with x.unsqueeze(0)"
            )
        if x.shape[1] != self.num_features:
            unbatched = x.ndim == 3 and x.shape[0] == self.num_features
            hint = "; for a single image add the batch axis with x.unsqueeze(0)" if unbatched else ""
            raise InputError(
                f"{self.label()}: expected {self.num_features} channels on axis 1, got {x.shape[1]} "
                f"in shape {_show(x)}{hint}"
            )
        if any(size == 0 for size in x.shape[2:]):
            raise InputError(f"{self.label()}: the maps of shape {_show(x)} hold no element")

    def refuse_single_element(self, x: Tensor, count: int, over: str) -> None:
        """Refuse to standardize by a statistic of one value: the result would be zero whatever the input.

        Args:
            x: the input, for the message.
            count: how many values the statistic is taken over.
            over: what those values are, in words.
        """
        if count == 1:
            raise InputError(
                f"{self.label()}: one value per {over} in shape {_show(x)}, nothing to standardize by; "
                "use larger maps, or leave this layer as it was"
            )

    def check_activation(self, activation: str | None) -> None:
        """Refuse what no layer applies to its output.

        Raises:
            InputError: neither `None` nor `"relu"`.
        """
        if activation not in reference.ACTIVATIONS:
            raise InputError(f"{self.label()}: activation must be None or 'relu', not {activation!r}")

    def affine_pair(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the static gain and bias `(c,)`, or `None` for each that the layer lacks."""
        return getattr(self, "weight", None), getattr(self, "bias", None)

    def inherit(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        num_batches_tracked: Tensor | None = None,
    ) -> None:
        """Take over what another norm layer learned, as far as this one has a place for it.

        An affine value that was frozen (or a buffer) stays frozen.
        """
        with torch.no_grad():
            for mine, theirs in zip(self.affine_pair(), (weight, bias), strict=True):
                if mine is not None and theirs is not None:
                    mine.copy_(theirs.reshape(mine.shape))
                    mine.requires_grad_(theirs.requires_grad)
            buffers = {"running_mean": running_mean, "running_var": running_var}
            for name, value in {**buffers, "num_batches_tracked": num_batches_tracked}.items():
                own = getattr(self, name, None)
                if own is not None and value is not None:
                    own.copy_(value)

    def label(self) -> str:
        """Return the name that error messages give the layer."""
        return f"{type(self).__name__}({self.num_features})"

    def extra_repr(self) -> str:
        """Return what `print(layer)` shows: the channels, and every option that differs from its default."""
        shown = [str(self.num_features)]
        for name, default in _defaults(type(self)).items():
            try:
                value = self.read_option(name)
            except AttributeError:  # a layer need not keep its options, and one from an old pickle may lack new ones
                continue
            # A tensor, array or module is what the layer made of an option, not the option.
            if not isinstance(value, Tensor | nn.Module) and (value != default) is True:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    def read_option(self, name: str) -> Any:
        """Return an option of the constructor: the attribute of its name, where a subclass does not say otherwise.

        Raises:
            AttributeError: the layer does not keep it.
        """
        return getattr(self, name)


def norm_relu(norm: nn.Module, x: Tensor) -> Tensor:
    """Return `relu(norm(x))`, in one pass where the norm can do both.

    Example:
        >>> norm_relu(nn.BatchNorm2d(3), torch.randn(2, 3, 4, 4)).min().item()
        0.0
    """
    if getattr(norm, "fuses_relu", False):
        y: Tensor = norm(x, activation="relu")
        return y
    return F.relu(norm(x))


def weigh_newest(momentum: float | None, num_batches: Tensor | None) -> float:
    """Return what the newest batch weighs in running statistics: without momentum, as much as each before it.

    Args:
        momentum: the weight; `None` averages over all batches, as `torch.optim.swa_utils.update_bn` asks for.
        num_batches: how many there have been, the newest too.

    Example:
        >>> weigh_newest(0.1, None), weigh_newest(None, torch.tensor(4))
        (0.1, 0.25)
    """
    if momentum is not None:
        return momentum
    return 0.0 if num_batches is None else 1 / float(num_batches)


def spatial_size(x: Tensor) -> int:
    """Return the number of positions of a map, one where `x` has no spatial axes."""
    size = 1
    for axis in x.shape[2:]:
        size = size * axis
    return size


def check_num_features(num_features: int) -> None:
    """Refuse a number of channels that is none.

    Raises:
        InputTypeError: not a whole number.
        InputError: below 1.
    """
    if isinstance(num_features, bool) or not isinstance(num_features, Integral):
        raise InputTypeError(f"num_features must be a whole number, not {num_features!r}")
    if num_features < 1:
        raise InputError(f"num_features must be at least 1, not {num_features}")


def check_eps(eps: float) -> None:
    """Refuse an epsilon under which a root has no value.

    Raises:
        InputError: negative, or NaN.
    """
    if not eps >= 0:
        raise InputError(f"eps must be at least 0, not {eps}")


def affine_parameters(num_features: int, **factory: Any) -> tuple[nn.Parameter, nn.Parameter]:
    """Return a gain of ones and a bias of zeros."""
    check_num_features(num_features)
    return nn.Parameter(torch.ones(num_features, **factory)), nn.Parameter(torch.zeros(num_features, **factory))


def reset_affine(layer: nn.Module) -> None:
    """Put gain and bias back to ones and zeros."""
    with torch.no_grad():
        layer.weight.fill_(1.0)  # type: ignore[operator]
        layer.bias.zero_()  # type: ignore[operator]


def join_processes(mean_nc: Tensor, variance_nc: Tensor, process_sum: ProcessSum) -> tuple[Tensor, Tensor, Tensor]:
    """Join the moments of the samples of all processes, as `reference.pool_moments` does those of one.

    Args:
        mean_nc: means of the channels of this process's samples.
        variance_nc: their variances.
        process_sum: sums over the processes.

    Returns:
        Mean and variance `(1, c)` of the whole batch, and its number of samples as a tensor.
    """
    own = mean_nc.new_full((1,), mean_nc.shape[0])
    total = process_sum(torch.cat([mean_nc.sum(0), own]))
    count = total[-1].detach()
    mean = (total[:-1] / count)[None]
    variance = process_sum((variance_nc + (mean_nc - mean).square()).sum(0, keepdim=True)) / count
    return mean, variance, count


def _defaults(kind: type) -> dict[str, Any]:
    """The options of a constructor with their defaults; of the next one too where it hands on `**options`."""
    found: dict[str, Any] = {}
    for owner in kind.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        for p in parameters:
            if p.kind not in _PACKED and p.name not in _NOT_SHOWN:
                found.setdefault(p.name, p.default)
        if all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters):
            break
    return found


def _show(x: Tensor) -> str:
    return str(tuple(int(size) for size in x.shape))
