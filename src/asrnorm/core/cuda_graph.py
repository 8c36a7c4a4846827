"""Capture a function as a CUDA graph.

A replay launches the same kernels on the same addresses and runs no Python. So the function must read its inputs from
tensors that stay in place, write its results to such tensors, and never synchronize with the device.
"""

import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor

from asrnorm.core.errors import first_line

logger = logging.getLogger("asrnorm")

T = TypeVar("T")


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
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    on_host = _host_generators()
    try:
        with torch.cuda.stream(stream):
            function()  # an error here would occur without a graph too
            torch.clear_autocast_cache()
            try:
                with _no_synchronization():
                    function()
            except RuntimeError as error:
                _warn_not_captured(what, error)
                return None
        if _host_generators() != on_host:
            _warn_not_captured(what, "it draws random numbers on the CPU")
            return None
        return _capture(function, stream, what)
    finally:
        # Casts cached by autocast live in the graph's memory or belong to weights before they were restored.
        torch.clear_autocast_cache()
        current.wait_stream(stream)
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)


def _capture(function: Callable[[], T], stream: torch.cuda.Stream, what: str) -> Graph[T] | None:
    torch.clear_autocast_cache()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads, such as one that pins memory, may keep calling CUDA.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            output = function()
    except RuntimeError as error:
        _warn_not_captured(what, error)
        return None
    return Graph(graph, output)


def _warn_not_captured(what: str, reason: object) -> None:
    first = first_line(reason).rstrip(".")
    logger.warning("%s is not captured as a CUDA graph, and slower for it: %s", what, first)


def _host_generators() -> tuple[object, ...]:
    return torch.random.get_rng_state().numpy().tobytes(), random.getstate()


@contextmanager
def _no_synchronization() -> Iterator[None]:
    """Make torch raise on synchronization, which a capture cannot do and recovers from badly."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(action="ignore"):  # the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
