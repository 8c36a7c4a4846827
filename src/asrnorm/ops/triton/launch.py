"""How activations lie in memory, and how large the blocks of the kernels are."""

from typing import NamedTuple

import torch
from torch import Tensor

SAMPLE_CHANNELS = 128
"""Up to here a sample's program reads all weights of the layer itself."""

_PER_THREAD = 16  # elements of a tile that a thread holds: two 16-byte loads of bfloat16 in flight for each tensor
_LARGE = 1 << 16  # elements of a sample from which on more warps pay
_WARP = 32


class Planes(NamedTuple):
    """Activations as `(n, c, s)`: strides of a channel and of a position; samples lie one after the other."""

    num: int
    channels: int
    positions: int
    stride_c: int
    stride_s: int


def memory_format(x: Tensor) -> torch.memory_format | None:
    """Return the dense layout in which `x` lies, `None` where it lies in neither of the two.

    Example:
        >>> memory_format(torch.zeros(2, 3, 4, 4)[:, :2]) is None
        True
    """
    if x.is_contiguous():
        return torch.contiguous_format
    for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.ndim == rank and x.is_contiguous(memory_format=last):
            return last
    return None


def dense(x: Tensor) -> Tensor:
    """Return `x` in one of the two layouts, copied only where it lies in neither."""
    return x if memory_format(x) is not None else x.contiguous()


def dense_like(x: Tensor, model: Tensor) -> Tensor:
    """Return `x` in the layout of `model`, which is dense."""
    layout = memory_format(model)
    assert layout is not None, "model went through dense()"
    return x.contiguous(memory_format=layout)


def empty_dense(x: Tensor) -> Tensor:
    """Return an empty tensor that lies as `dense(x)` does."""
    if memory_format(x) is None:
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    return torch.empty_like(x)


def planes(x: Tensor) -> Planes:
    """Describe dense activations.

    Example:
        >>> planes(torch.zeros(2, 3, 4, 5))
        Planes(num=2, channels=3, positions=20, stride_c=20, stride_s=1)
    """
    num, channels = x.shape[:2]
    positions = x[0, 0].numel() if num else 0
    if memory_format(x) is torch.contiguous_format:
        return Planes(num, channels, positions, positions, 1)
    return Planes(num, channels, positions, 1, channels)


def is_traced(x: Tensor) -> bool:
    """Tell whether somebody records, fakes or transforms a call on `x`, so that it must be an operator they know.

    Example:
        >>> is_traced(torch.zeros(1)), torch.func.vmap(lambda x: x + is_traced(x))(torch.zeros(2))
        (False, tensor([1., 1.]))
    """
    if torch.compiler.is_compiling() or type(x) not in (Tensor, torch.nn.Parameter):
        return True
    # What records or fakes comes with a mode, vmap and its kin with a level.
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.maybe_current_level() is not None


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less.

    Example:
        >>> power_of_two(33)
        64
    """
    return 1 << max(0, number - 1).bit_length()


class Block(NamedTuple):
    """A tile of channels and positions, and the warps that work on it."""

    channels: int
    positions: int
    warps: int


def sample_block(p: Planes, most_warps: int) -> Block:
    """Tiles of a program that takes a whole sample: all channels, as many positions as fill its threads."""
    channels = power_of_two(p.channels)
    whole = channels * power_of_two(p.positions)
    warps = min(most_warps if whole >= _LARGE else 8, max(4, whole // (_WARP * _PER_THREAD)))
    positions = max(1, min(power_of_two(p.positions), warps * _WARP * _PER_THREAD // channels))
    return Block(channels, positions, warps)


def sweep_block(p: Planes) -> Block:
    """Tiles of a program that goes over all positions of some channels of a sample."""
    # 128 bytes of neighboring channels in channels-last; a few rows otherwise.
    channels = min(power_of_two(p.channels), 64 if p.stride_c == 1 else 8)
    positions = min(power_of_two(p.positions), 4096 // channels)
    return Block(channels, positions, 4)


def stages(p: Planes, block: Block) -> int:
    """Return how many tiles a loop of the backward pass has on their way from memory at a time.

    Ahead of a short loop it does not pay, nor in the forward pass, which waits for one tensor instead of two.
    """
    return 4 if p.positions > 2 * block.positions else 1


def tile_block(p: Planes) -> Block:
    """Tiles of a program that takes just one."""
    if p.stride_c == 1:
        channels = min(power_of_two(p.channels), 64)
        return Block(channels, min(power_of_two(p.positions), 4096 // channels), 4)
    positions = min(power_of_two(p.positions), 1024)
    return Block(min(power_of_two(p.channels), max(1, 4096 // positions)), positions, 4)
