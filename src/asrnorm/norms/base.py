"""The registry of norm layers, the base classes they derive from, and the layer that does nothing."""

import functools
import inspect
import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from asrnorm.core.errors import InputError, InputTypeError
from asrnorm.core.reading import check_int
from asrnorm.core.registry import Registry
from asrnorm.norms import reference

NORMS: Registry[Callable[..., nn.Module]] = Registry("norm")

ProcessSum = Callable[[Tensor], Tensor]
"""Sums a tensor over the processes of a run; differentiable."""


class NormLayer(nn.Module):
    """The base class of every registered norm: input checks, error labels, `print`, and the affine pair.

    The contract: `Layer(num_features, *, eps=..., device=None, dtype=None, ...)`, so that any norm serves as a
    backbone's `norm_layer=`; input `(n, c, ...)` with any number of spatial axes; output of the same shape, dtype and
    memory format.

    Attributes:
        process_sum: set when several processes share a batch, so that statistics cover the whole batch.
        fuses_relu: whether `forward` takes `activation="relu"`.
        input_rank: required number of input axes; set when the layer replaces one whose batches have that many.
    """

    num_features: int
    fuses_relu = False
    input_rank: int | None = None
    process_sum: ProcessSum | None = None

    def check_input(self, x: Tensor) -> None:
        """Raise if the layer cannot normalize `x`: not floating-point, wrong rank or channel count, or empty maps."""
        if not isinstance(x, Tensor):
            hint = "; torch.fx: let the tracer take norm layers as leaves" if type(x).__name__ == "Proxy" else ""
            raise InputTypeError(f"{self.label()}: expected a tensor, got {type(x).__name__}{hint}")
        if not torch.is_floating_point(x):
            raise InputTypeError(
                f"{self.label()}: expected floating-point input, got {x.dtype}; convert it with x.float()"
            )
        if x.ndim < 2:
            raise InputError(f"{self.label()}: expected input (N, C, ...), got shape {_show(x)}")
        single = "; for a single image add the batch axis with x.unsqueeze(0)"
        if self.input_rank is not None and x.ndim != self.input_rank:
            raise InputError(
                f"{self.label()}: expected input with {self.input_rank} axes, like the layer it replaces, got shape "
                f"{_show(x)}{single}"
            )
        if x.shape[1] != self.num_features:
            is_unbatched = x.ndim == 3 and x.shape[0] == self.num_features
            raise InputError(
                f"{self.label()}: expected {self.num_features} channels on axis 1, got {x.shape[1]} "
                f"in shape {_show(x)}{single if is_unbatched else ''}"
            )
        if any(size == 0 for size in x.shape[2:]):
            raise InputError(f"{self.label()}: the maps of shape {_show(x)} are empty")

    def check_several_values(self, x: Tensor, count: int, per: str) -> None:
        """Raise if a statistic of `x` covers a single value: standardizing by it gives zero for any input.

        `count` is the number of values; `per` says in words what each statistic belongs to.
        """
        if count == 1:
            raise InputError(
                f"{self.label()}: one value per {per} in shape {_show(x)}, nothing to standardize by; "
                "use larger maps, or leave this layer as it was"
            )

    def check_activation(self, activation: str | None) -> None:
        """Raise `InputError` unless `activation` is `None` or `"relu"`."""
        if activation not in reference.ACTIVATIONS:
            raise InputError(f"{self.label()}: activation must be None or 'relu', not {activation!r}")

    def affine_pair(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the static gain and bias `(c,)`, `None` for each that the layer lacks."""
        return getattr(self, "weight", None), getattr(self, "bias", None)

    def inherit(
        self,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        num_batches_tracked: Tensor | None = None,
    ) -> None:
        """Copy another layer's affine parameters and running statistics where this layer has matching attributes.

        The copy of a frozen affine parameter (or of a buffer) is frozen.
        """
        buffers = {"running_mean": running_mean, "running_var": running_var, "num_batches_tracked": num_batches_tracked}
        with torch.no_grad():
            for own, value in zip(self.affine_pair(), (weight, bias), strict=True):
                if own is not None and value is not None:
                    own.copy_(value.reshape(own.shape))
                    own.requires_grad_(value.requires_grad)
            for name, value in buffers.items():
                own = getattr(self, name, None)
                if own is not None and value is not None:
                    own.copy_(value)

    def label(self) -> str:
        """Return the layer's name in error messages."""
        return f"{type(self).__name__}({self.num_features})"

    def extra_repr(self) -> str:
        """Return what `print(layer)` shows: the channels, and every option that differs from its default."""
        shown = [str(self.num_features)]
        for name, default in _defaults(type(self)).items():
            try:
                value = self.read_option(name)
            except AttributeError:  # a layer need not store its options, and an old pickle may lack new ones
                continue
            # A tensor, array or module under an option's name is derived from the option.
            if not isinstance(value, Tensor | nn.Module) and (value != default) is True:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    def read_option(self, name: str) -> Any:
        """Return a constructor option by name; by default the attribute of that name."""
        return getattr(self, name)


class AffineNorm(NormLayer):
    """A norm with an epsilon, a gain `weight` of ones and a `bias` of zeros."""

    def __init__(
        self, num_features: int, eps: float, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        check_sizes(num_features, eps)
        self.num_features, self.eps = num_features, eps
        self.weight, self.bias = affine_parameters(num_features, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Reset gain and bias to ones and zeros."""
        with torch.no_grad():
            self.weight.fill_(1.0)
            self.bias.zero_()


@NORMS.register("none")
class NoNorm(NormLayer):
    """No normalization: the input, as it is.

    Args:
        num_features: C; the input is still checked for it.
        device: unused; part of the contract.
        dtype: unused; part of the contract.

    Attributes:
        copies: return a copy, like every other norm; set when the layer replaces a norm, because the next layer may
            change its input in place.

    Example:
        >>> x = torch.randn(2, 8, 4, 4)
        >>> NoNorm(8)(x) is x
        True
    """

    copies: bool = False

    def __init__(
        self,
        num_features: int,
        *,
        device: torch.device | str | None = None,  # noqa: ARG002
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__()
        check_sizes(num_features)
        self.num_features = num_features

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`."""
        self.check_input(x)
        return x.clone() if self.copies else x


def preset(layer: type[nn.Module], *, without: Collection[str] = (), **fixed: Any) -> Callable[..., None]:
    """Return an `__init__` for a subclass of `layer` with `fixed` options; it takes neither these nor those `without`.

    Example:
        >>> from asrnorm.norms import GroupNorm
        >>> class PairNorm(GroupNorm):
        ...     __init__ = preset(GroupNorm, num_groups=2)
        >>> PairNorm(8).num_groups, str(inspect.signature(PairNorm)).split(":")[0]
        (2, '(num_features')
    """
    construct: Callable[..., None] = layer.__init__
    signature = inspect.signature(construct)
    kept = [p for p in signature.parameters.values() if p.name not in fixed and p.name not in without]
    signature = signature.replace(parameters=kept)

    @functools.wraps(construct)
    def __init__(self: nn.Module, *args: Any, **options: Any) -> None:  # noqa: N807
        signature.bind(self, *args, **options)  # raises TypeError for options of `layer` that are fixed or left out
        construct(self, *args, **options, **fixed)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def norm_relu(norm: nn.Module, x: Tensor) -> Tensor:
    """Return `relu(norm(x))`, in one pass where the norm supports it."""
    if getattr(norm, "fuses_relu", False):
        y: Tensor = norm(x, activation="relu")
        return y
    return F.relu(norm(x))


def spatial_size(x: Tensor) -> int:
    """Return the number of positions of a map, one if `x` has no spatial axes."""
    return math.prod(x.shape[2:])


def check_number(name: str, value: float) -> None:
    """Raise `InputTypeError` if a value is not a number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name} must be a number, not {value!r:.80}")


def check_sizes(num_features: int, eps: float = 0.0) -> None:
    """Raise if `num_features` is not a positive integer or `eps` is negative or NaN."""
    if isinstance(num_features, bool) or not isinstance(num_features, Integral):
        raise InputTypeError(f"num_features must be a whole number, not {num_features!r}")
    if check_int(num_features, "num_features") < 1:
        raise InputError(f"num_features must be at least 1, not {num_features}")
    check_number("eps", eps)
    if not eps >= 0:
        raise InputError(f"eps must be at least 0, not {eps}")


def affine_parameters(num_features: int, **factory: Any) -> tuple[nn.Parameter, nn.Parameter]:
    """Return a gain of ones and a bias of zeros."""
    return nn.Parameter(torch.ones(num_features, **factory)), nn.Parameter(torch.zeros(num_features, **factory))


def clamp_gate(gate: nn.Parameter, *, training: bool) -> Tensor:
    """Return a gate clamped to [0, 1]; in training the parameter itself is clamped."""
    if not training:
        return gate.clamp(0.0, 1.0)
    # Clamped in place and cloned: the graph keeps the clone, so that a second forward before the backward does not
    # invalidate what the first one saved. Through `.data`, because a penalty on the gate may already be in a graph.
    gate.data.clamp_(0.0, 1.0)
    return gate.clone()


def _defaults(layer: type) -> dict[str, Any]:
    """Return the options of a constructor with their defaults, including the base class's behind `**options`."""
    found: dict[str, Any] = {}
    for owner in layer.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        for p in parameters:
            is_packed = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            if not is_packed and p.name not in ("self", "num_features", "device", "dtype"):
                found.setdefault(p.name, p.default)
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return found


def _show(x: Tensor) -> str:
    return str(tuple(int(size) for size in x.shape))
