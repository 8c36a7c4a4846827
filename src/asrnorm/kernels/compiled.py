"""Launches of compiled kernels, without Triton's search for the one that fits the arguments.

At every call Triton inspects all arguments, about thirty of a fused kernel, which takes the host longer than the kernel
takes the GPU. Grid, sizes and options follow from the shape of a layer, so that calls differ in their tensors alone.
"""

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

from torch import Tensor
from triton import knobs
from triton.runtime import driver

_ALIGNMENT = 16  # bytes; Triton compiles pointers that are multiples of it separately


class Launch:
    """A kernel with everything but its tensors, which are its first arguments.

    The first call with tensors of some dtypes goes through Triton, as do calls with a tensor that is not aligned and
    calls under a profiler that hooks into launches; all others launch the kernel that Triton chose in that first call.

    Args:
        kernel: a function decorated with `triton.jit`.
        grid: one to three numbers of programs.
        sizes: numbers, the arguments after the tensors; `None` is a constant to the compiler.
        options: the remaining arguments by name, and Triton's own.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], sizes: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.kernel, self.grid, self.sizes, self.options = kernel, grid, sizes, options
        self._launchers: dict[tuple[Any, ...], Callable[[list[int]], object]] = {}

    def __call__(self, *tensors: Tensor | None) -> None:
        """Launch the kernel on the current stream of the current device, which is that of the tensors."""
        device = tensors[0].get_device()  # type: ignore[union-attr]
        kinds = (device, *[None if t is None else t.dtype for t in tensors])
        launcher = self._launchers.get(kinds)
        addresses = [0 if t is None else t.data_ptr() for t in tensors]
        is_aligned = reduce(operator.or_, addresses) % _ALIGNMENT == 0
        if launcher is not None and is_aligned and not _has_hook():
            launcher(addresses)
            return
        compiled = self.kernel[self.grid](*tensors, *self.sizes, **self.options)
        # An interpreted kernel returns none; another version of Triton may return something else.
        is_known = all(hasattr(compiled, name) for name in ("run", "function", "packed_metadata"))
        if launcher is None and is_aligned and is_known:
            self._launchers[kinds] = self._direct(compiled, device)

    def _direct(self, compiled: Any, device: int) -> Callable[[list[int]], object]:
        """Return a function that launches a compiled kernel on tensors of these addresses."""
        x, y, z = (*self.grid, 1, 1)[:3]
        named = [self.options[name] for name in self.kernel.arg_names if name in self.options]
        run, function, metadata, rest = compiled.run, compiled.function, compiled.packed_metadata, (*self.sizes, *named)
        current_stream = driver.active.get_current_stream

        def launch(addresses: list[int]) -> None:
            run(x, y, z, current_stream(device), function, metadata, None, None, None, *addresses, *rest)

        return launch


def _has_hook() -> bool:
    """Tell whether a profiler wants to see every launch; a chain of hooks may be empty."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
