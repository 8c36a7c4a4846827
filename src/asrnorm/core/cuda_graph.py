"""A function of fixed memory as a CUDA graph: the kernels it launched once are launched again as one.

What a graph replays is what the function did on the device, to the same addresses; its Python does not run again. So
the function must take its input from tensors that stay where they are, leave its results in such tensors, and wait for
nothing.
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
    """A captured function.

    Attributes:
        output: what the function returned while it was captured; tensors in it hold the results of the last replay.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, output: T) -> None:
        self._graph, self.output = graph, output

    def replay(self) -> None:
        """Do it again; returns before the device is done."""
        self._graph.replay()


def capture(
    function: Callable[[], T], device: torch.device, *, changed: Iterable[Tensor] = (), what: str = "the step"
) -> Graph[T] | None:
    """Return a function as a graph, or `None` with one line in the log that says why it cannot be one.

    The function is called twice before it is captured: libraries load, constants are copied to the device. What it
    changes is put back.

    Args:
        function: without arguments; see the module.
        device: a CUDA device.
        changed: all tensors that the function changes and that must be as if it had not been called.
        what: names the function in the log.
    """
    kept = [(tensor, tensor.detach().clone()) for tensor in changed]
    stream = torch.cuda.Stream(device)
    current = torch.cuda.current_stream(device)
    stream.wait_stream(current)
    on_host = _host_generators()
    try:
        with torch.cuda.stream(stream):
            function()  # where this fails, it fails without a graph too
            torch.clear_autocast_cache()
            try:
                with _waiting_for_nothing():
                    function()
            except RuntimeError as error:
                _refuse(what, error)
                return None
        if _host_generators() != on_host:
            _refuse(what, "it draws random numbers on the CPU")
            return None
        return _capture(function, stream, what)
    finally:
        # Casts that autocast has kept lie in the graph's memory, or are of weights before they were put back.
        torch.clear_autocast_cache()
        current.wait_stream(stream)
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)


def _capture(function: Callable[[], T], stream: torch.cuda.Stream, what: str) -> Graph[T] | None:
    torch.clear_autocast_cache()
    graph = torch.cuda.CUDAGraph()
    try:
        # Other threads, such as one that pins memory, may go on with what they do.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            output = function()
    except RuntimeError as error:
        _refuse(what, error)
        return None
    return Graph(graph, output)


def _refuse(what: str, reason: object) -> None:
    first = first_line(reason).rstrip(".")
    logger.warning("%s is not captured as a CUDA graph, and slower for it: %s", what, first)


def _host_generators() -> tuple[object, ...]:
    return torch.random.get_rng_state().numpy().tobytes(), random.getstate()


@contextmanager
def _waiting_for_nothing() -> Iterator[None]:
    """Let torch refuse what would wait for the device, which a capture cannot do and does not recover from well."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
