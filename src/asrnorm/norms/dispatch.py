"""Which implementation computes a call: the Triton kernels where they can run, otherwise the reference.

Decided for every call, by the device and dtype of the input. `ASRNORM_BACKEND` or `use_backend` overrides it.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeVar

import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.core.settings import BACKEND_VARIABLE, BACKENDS, LEAST_CAPABILITY

Backend = Literal["auto", "reference", "triton"]

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_warned: set[str] = set()
_ready: set[torch.device] = set()  # where kernels ran; asking for the problem takes the host longer than a launch
_COMPILING = "compiling GPU kernels at first use: up to 90 s, unless an earlier process has left them in Triton's cache"
logger = logging.getLogger("asrnorm")

F = TypeVar("F", bound=Callable[..., object])


def _constant(function: F) -> F:
    """Let the compiler call a function once and keep its result, as `torch.compiler.assume_constant_result` does.

    PyTorch's own decorator imports the whole compiler, which takes as long as importing torch.
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
        name: `auto` uses the kernels where they can run, `reference` never, `triton` raises where they cannot.

    Example:
        >>> import asrnorm
        >>> with use_backend("reference"):
        ...     asrnorm.ASRNorm2d(3)(torch.randn(2, 3, 4, 4)).shape
        torch.Size([2, 3, 4, 4])
    """
    global _backend
    before, _backend = _backend, _checked(name, "the backend")
    try:
        yield
    finally:
        _backend = before


@_constant
def kernel_problem(index: int = 0) -> str | None:
    """Return why the kernels cannot run on the CUDA device of that index, `None` where they can."""
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
    """Import the kernels once; return why that fails, `None` where it succeeds."""
    if not _problem:
        try:
            from asrnorm.kernels import autograd, moments_rescale  # noqa: F401
        except ImportError as error:
            _problem.append(f"Triton is not available ({error}); pip install triton")
        else:
            _problem.append(None)
    return _problem[0]


@_constant
def _is_exporting() -> bool:
    """Tell whether `torch.export` traces. When traced itself, torch 2.11 also says yes under `torch.compile`."""
    return torch.compiler.is_exporting()


def _why_reference(x: Tensor) -> str | None:
    """Return why a call belongs to the reference, which needs no warning; `None` where the kernels may take it."""
    if x.device.type != "cuda":
        return f"the kernels run on CUDA devices, the input is on {x.device.type}"
    if x.dtype not in _DTYPES:
        return f"the kernels take float32, float16 and bfloat16, the input is {x.dtype}"
    if _is_exporting():
        return "an exported file must run without this package"
    return None


def takes_kernels(x: Tensor) -> bool:
    """Tell whether the kernels compute a call on `x`; warn once, or raise under `triton`, where they cannot run."""
    if _backend == "reference":
        return False
    if x.device in _ready and x.dtype in _DTYPES and not torch.compiler.is_compiling():
        return True
    reason = _why_reference(x)
    if reason is None:
        reason = kernel_problem(x.device.index or 0)
        if reason is not None and _backend == "auto":
            _warn_once(reason)
    if reason is not None and _backend == "triton":
        raise InputError(f"backend 'triton': {reason}")
    # Asked first, so that the compiler drops the rest.
    if reason is None and not torch.compiler.is_compiling() and _COMPILING not in _warned:
        _warned.add(_COMPILING)
        logger.warning(_COMPILING)
    if reason is None and not torch.compiler.is_compiling():
        _ready.add(x.device)
    return reason is None


def takes_cpu_function(x: Tensor) -> bool:
    """Tell whether an eager call on `x` belongs to `asrnorm.kernels.cpu`, if that takes it."""
    return _backend == "auto" and x.device.type == "cpu" and not torch.compiler.is_compiling()


def _warn_once(reason: str) -> None:
    if torch.compiler.is_compiling() or reason in _warned:
        return
    _warned.add(reason)
    warnings.warn(f"norm layers run by the slower reference: {reason}", RuntimeWarning, stacklevel=4)
