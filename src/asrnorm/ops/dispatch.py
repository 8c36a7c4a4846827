"""Which implementation computes a call: the reference, or the kernels where they can and nothing speaks against it.

Decided anew for every call, by the device and dtype of the input. `ASRNORM_BACKEND` or `use_backend` overrule it.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

import torch
from torch import Tensor

from asrnorm.diagnosis import BACKEND_VARIABLE, BACKENDS, LEAST_CAPABILITY
from asrnorm.errors import InputError
from asrnorm.ops import reference
from asrnorm.ops.reference import RescaleNets, StandardizeNets

Backend = Literal["auto", "reference", "triton"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_warned: set[str] = set()

F = TypeVar("F", bound=Callable[..., object])


def _constant(function: F) -> F:
    """Mark what the compiler may ask once, as `torch.compiler.assume_constant_result` does.

    That one imports the whole compiler, which takes as long as importing torch, for everybody who imports a norm.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def _checked(name: str, where: str) -> str:
    if name not in BACKENDS:
        raise InputError(f"{where} must be one of {', '.join(BACKENDS)}, not {name!r}")
    return name


_backend = _checked(os.environ.get(BACKEND_VARIABLE) or "auto", BACKEND_VARIABLE)


@contextmanager
def use_backend(name: Backend) -> Iterator[None]:
    """Choose the implementation of the norm layers within a block.

    Args:
        name: `auto` takes the kernels where they can be used, `reference` never, `triton` raises where they cannot.

    Example:
        >>> with use_backend("reference"):
        ...     asr_norm(torch.randn(2, 3, 4, 4), None, None, torch.ones(3), torch.zeros(3)).shape
        torch.Size([2, 3, 4, 4])
    """
    global _backend
    before, _backend = _backend, _checked(name, "the backend")
    try:
        yield
    finally:
        _backend = before


def is_plain() -> bool:
    """Tell whether nothing but PyTorch's own operations was asked for.

    Example:
        >>> with use_backend("reference"):
        ...     is_plain()
        True
    """
    return _backend == "reference"


@_constant
def kernel_problem(index: int = 0) -> str | None:
    """Return why the kernels cannot run on a CUDA device, `None` where they can.

    Args:
        index: of the device.
    """
    capability = torch.cuda.get_device_capability(index)
    if torch.version.hip is not None:
        return "the kernels were written for NVIDIA GPUs and are untried on this one"
    if capability < LEAST_CAPABILITY:
        least = ".".join(map(str, LEAST_CAPABILITY))
        return f"this GPU has compute capability {'.'.join(map(str, capability))}, the kernels need {least}"
    return load_problem()


_problem: list[str | None] = []


@_constant
def load_problem() -> str | None:
    """Import the kernels once; return why that is not possible, `None` where it is."""
    if not _problem:
        try:
            from asrnorm.ops.triton import library, plane  # noqa: F401
        except ImportError as error:
            _problem.append(f"Triton is not there ({error}); pip install triton")
        else:
            _problem.append(None)
    return _problem[0]


@_constant
def _is_exporting() -> bool:
    """Tell whether a file is being made. Traced, torch 2.11 would answer yes to the compiler too."""
    return torch.compiler.is_exporting()


def _why_reference(x: Tensor) -> str | None:
    """Why a call is the reference's by right; nobody needs to be told."""
    if x.device.type != "cuda":
        return f"the kernels run on CUDA devices, the input is on {x.device.type}"
    if x.dtype not in _DTYPES:
        return f"the kernels take float32, float16 and bfloat16, the input is {x.dtype}"
    if _is_exporting():
        return "an exported file must run without this package"
    return None


def takes_kernels(x: Tensor) -> bool:
    """Say whether the kernels compute a call on `x`; warn once where they should and cannot.

    Raises:
        InputError: they were asked for by name, and cannot.
    """
    if _backend == "reference":
        return False
    reason = _why_reference(x)
    if reason is None:
        reason = kernel_problem(x.device.index or 0)
        if reason is not None and _backend == "auto":
            _warn_once(reason)
    if reason is not None and _backend == "triton":
        raise InputError(f"backend 'triton': {reason}")
    return reason is None


def _warn_once(reason: str) -> None:
    if torch.compiler.is_compiling() or reason in _warned:
        return
    _warned.add(reason)
    warnings.warn(f"asrnorm computes its layers by the slower reference: {reason}", RuntimeWarning, stacklevel=4)


def asr_norm(
    x: Tensor,
    standardize: StandardizeNets | None,
    rescale: RescaleNets | None,
    gamma_bias: Tensor,
    beta_bias: Tensor,
    *,
    native: tuple[Tensor, Tensor] | None = None,
    limits: tuple[Tensor, Tensor] | None = None,
    eps: float = 1e-5,
    eps_out: float | None = None,
    activation: str | None = None,
) -> Tensor:
    """`asrnorm.ops.reference.asr_norm`, by the kernels where they can."""
    outer = eps if eps_out is None else eps_out
    if not takes_kernels(x):
        pass
    elif native is None and limits is None:
        from asrnorm.ops.triton import library, parameter

        weights = parameter.flatten(standardize, rescale, gamma_bias, beta_bias)
        return library.apply(x, weights, eps, outer, activation == "relu")
    else:
        with reference.full_precision(x):
            x, mean_nc, variance_nc = with_moments(x)
            std_nc = torch.sqrt(variance_nc + eps)
            vectors = reference.learned_vectors(
                mean_nc, std_nc, standardize, rescale, gamma_bias, beta_bias, native, limits
            )
            return standardize_rescale(x, *vectors, eps=outer, activation=activation)
    return reference.asr_norm(
        x,
        standardize,
        rescale,
        gamma_bias,
        beta_bias,
        native=native,
        limits=limits,
        eps=eps,
        eps_out=eps_out,
        activation=activation,
    )


def with_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the activations to go on with, and mean and biased variance of every channel of every sample.

    What is computed from the moments goes to `standardize_rescale` with the activations returned here: by the kernels,
    both gradients of the input then meet in one pass.

    Example:
        >>> x, mean, variance = with_moments(torch.randn(2, 3, 4, 4))
        >>> mean.shape, variance.shape
        (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    if takes_kernels(x) and x.shape[0] > 0:
        from asrnorm.ops.triton.plane import with_moments as by_kernels

        return by_kernels(x)
    return x, *reference.channel_moments(x)


def standardize_rescale(
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    *,
    eps: float,
    activation: str | None = None,
) -> Tensor:
    """`asrnorm.ops.reference.standardize_rescale`, by the kernels where they can, then an optional ReLU."""
    if takes_kernels(x) and x.shape[0] > 0:
        from asrnorm.ops.triton import plane

        shape = x.shape[:2]
        parts = (mean, std, 1.0 if gain is None else gain, 0.0 if bias is None else bias)
        vec = torch.stack([_spread(part, shape, mean) for part in parts])
        return plane.apply(x, vec, eps, activation == "relu")
    y = reference.standardize_rescale(x, mean, std, gain, bias, eps=eps)
    return torch.relu(y) if activation == "relu" else y


def _spread(part: Tensor | float, shape: torch.Size, like: Tensor) -> Tensor:
    if isinstance(part, float):
        return like.new_full(shape, part, dtype=torch.float32)
    return part.to(torch.float32).expand(shape)
