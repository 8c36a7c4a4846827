"""Devices for benchmarks: CUDA graphs, backends, copy bandwidth, and memory of a forward and backward pass."""

import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from asrnorm import ops
from asrnorm.bench.harness import Case, compare
from asrnorm.core.errors import InputError, WrongCallError, first_line
from asrnorm.core.settings import BACKEND_VARIABLE
from asrnorm.norms.dispatch import Backend, kernel_problem

logger = logging.getLogger("asrnorm")

_WARMUP = 3  # calls before a capture: workspaces, kernels and the optimizer's state must exist


def require(device: str | None) -> torch.device:
    """Return the device of this name, `cpu` or `cuda`; by default `cuda` if this machine has it."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise WrongCallError(f"device {device!r} cannot be used: it must be cpu or cuda")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {device!r} was asked for, but torch sees no such CUDA device; use --device cpu")
    if chosen.type == "cuda" and chosen.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return chosen


@contextmanager
def on_backend(name: Backend) -> Iterator[None]:
    """Choose the backend of norm layers and augmentations: `auto`, or `reference` for plain tensor operations."""
    with environment({BACKEND_VARIABLE: name} if name == "reference" else {}), ops.use_backend(name):
        yield


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during a block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def has_fused(device: torch.device) -> bool:
    """Tell whether norm layers run as Triton kernels on the device, so that a row may be called fused."""
    return device.type == "cuda" and kernel_problem(torch.cuda.current_device()) is None


def capture(function: Callable[[], object], generator: torch.Generator | None = None) -> Callable[[], None]:
    """Return the replay of a CUDA graph of `function`, which must not read results back to the host.

    A generator of the device that the function draws from advances with every replay. The outputs of the captured call
    and everything the function refers to live as long as the graph, which reads their addresses.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARMUP):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=side):  # autograd runs on the stream of the first call
        kept = function()

    def replay() -> None:
        graph.replay()

    replay.kept = (function, kept)  # type: ignore[attr-defined]
    return replay


def attempt(name: str, make: Callable[[], Case]) -> dict[str, Case]:
    """Return the case under its name, or log one line and return nothing if it cannot be built or run.

    A failure of the compiler in one case must not cost the others their numbers. The log says how long it took.
    """
    start = time.monotonic()
    try:
        case = make()
        case.run()
    except Exception as error:
        logger.warning("bench: %s is skipped: %s: %s", name, type(error).__name__, first_line(error))
        return {}
    logger.info("bench: %s is ready after %.0f s", name, time.monotonic() - start)
    return {name: case}


def forget_compiled() -> None:
    """Reset the compiler and free graphs: torch recompiles one function only a few times, then gives up."""
    if "torch._dynamo" in sys.modules:  # importing the compiler only to reset it takes seconds
        torch.compiler.reset()
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def copy_bandwidth(device: torch.device, *, quick: bool = False) -> float:
    """Return the bandwidth of a large copy on the device, in bytes read plus bytes written per second."""
    size = 1 << (20 if quick else 30 if device.type == "cuda" else 26)
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    case = Case(lambda: target.copy_(source), 2 * size, device)
    (row,) = compare("copy", {"copy": case}, baseline="copy", repeats=2 if quick else 10)
    return row.per_second


def saved_bytes(function: Callable[[], object], kept: tuple[Tensor, ...] = ()) -> int:
    """Return the bytes that autograd saves in a forward pass, each storage counted once, without those of `kept`."""
    living = {tensor.untyped_storage().data_ptr() for tensor in kept}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in living:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()  # keep it alive: freed memory could be reused and counted twice
    del result
    return sum(storages.values())


def peak_bytes(function: Callable[[], object], device: torch.device) -> int | None:
    """Return the peak of the memory that a call allocates on top of what was allocated before, or `None` on a CPU."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = function()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    return peak
