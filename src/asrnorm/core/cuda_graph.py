"""Capture a function as a CUDA graph.

A replay launches the same kernels on the same addresses and runs no Python. So the function must read its inputs from
tensors that stay in place, write its results to such tensors, and never synchronize with the device.
"""

import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor

from asrnorm.core.errors import first_line

logger = logging.getLogger("asrnorm")

T = TypeVar("T")

DRAWS_ON_HOST = "it draws random numbers on the CPU"
_SYNCHRONIZES = "called a synchronizing"


class Graph(Generic[T]):
    """A captured function; the tensors of its `output` hold the results of the last replay."""

    def __init__(self, graph: torch.cuda.CUDAGraph, output: T) -> None:
        self._graph, self.output = graph, output

    def replay(self) -> None:
        """Launch the graph; returns before the device is done."""
        self._graph.replay()


def capture(
    function: Callable[[], T], device: torch.device, *, changed: Iterable[Tensor] = (), what: str = "the step"
) -> Graph[T] | None:
    """Return a function as a CUDA graph, or log one line with the reason and return `None`.

    The function is called twice as a warm-up (libraries load, constants move to the device); then the tensors that it
    modifies, `changed`, are restored. Log messages call it `what`.
    """
    kept = [(tensor, tensor.detach().clone()) for tensor in changed]
    stream = torch.cuda.Stream(device)
    generators = host_generators()
    try:
        with on_stream(stream):
            function()  # an error here would occur without a graph too
            torch.clear_autocast_cache()
            try:
                with _synchronization("error"):
                    function()
                if host_generators() != generators:
                    raise RuntimeError(DRAWS_ON_HOST)
                return record(function, stream)
            except RuntimeError as error:
                warn_not_captured(what, error)
                return None
    finally:
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)


def record(function: Callable[[], T], stream: torch.cuda.Stream) -> Graph[T]:
    """Call a function that has run on the stream before, and return what it launches as a graph; nothing is computed.

    Raises what the function raises, and `RuntimeError` for what a graph cannot hold.
    """
    torch.clear_autocast_cache()  # it may hold casts of earlier weights
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads, such as one that pins memory, may keep calling CUDA.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            output = function()
    except Exception:
        # The failed capture leaves the GPU's generator waiting for its end; a capture that succeeds ends that.
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            torch.zeros((), device=stream.device)
        raise
    return Graph(graph, output)


@contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Launch on a stream within the block, in order with what is launched before and after it."""
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        torch.clear_autocast_cache()  # casts live in the graph's memory or belong to weights that are restored
        current.wait_stream(stream)


def warn_not_captured(what: str, reason: object) -> None:
    """Log one line."""
    logger.warning("%s is not captured as a CUDA graph, and slower for it: %s", what, first_line(reason).rstrip("."))


def host_generators() -> tuple[object, ...]:
    """Return the states of the global generators on the CPU, by which a draw shows."""
    numpy = sys.modules.get("numpy")
    drawn = (
        []
        if numpy is None
        else [part if isinstance(part, int | float | str) else part.tobytes() for part in numpy.random.get_state()]
    )
    return torch.random.get_rng_state().numpy().tobytes(), random.getstate(), *drawn


@contextmanager
def watch_synchronization() -> Iterator[list[str]]:
    """Collect the warnings of operations that wait for the device, which a capture cannot do; pass others on."""
    found: list[str] = []
    with warnings.catch_warnings(record=True, action="always") as caught, _synchronization("warn"):
        yield found
    for warning in caught:
        if _SYNCHRONIZES in str(warning.message):
            found.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def _synchronization(mode: str) -> Iterator[None]:
    """Make torch warn or raise on synchronization, from which a capture recovers badly."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(action="ignore"):  # the mode is a prototype
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
