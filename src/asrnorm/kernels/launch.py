"""How activations lie in memory, and how large the blocks of the kernels are."""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

SAMPLE_CHANNELS = 128
"""Up to here a sample's program reads all weights of the layer itself."""

MANY_SAMPLES = 256
"""From here on a GPU is full without more than a few warps a sample."""

FEW_SAMPLES = 32
"""Up to here a program a sample leaves three quarters of a GPU idle."""

SPREAD = 1 << 18
"""Bytes of a sample from which on that costs more than the launches of several passes."""

HELD = 1 << 17
"""Bytes of a sample, padded to whole tiles, up to which its program holds it in registers; 0 to read it again."""

_PER_THREAD = 16  # elements of a tile that a thread holds: two 16-byte loads of bfloat16 in flight for each tensor
_LOAD_BYTES = 16  # the longest load of a thread; what Triton asks a stride to be a multiple of, in elements
_HELD_BYTES = 256  # of each tensor that a thread holds: 64 registers
_LARGE = 1 << 16  # elements of a sample from which on more warps pay
_PROGRAMS = 256  # that fill a GPU
_SHORT = 256  # positions that two warps go over
_WARP = 32
_PART, _MOST_PARTS = 128, 8  # samples of a part of their sum


class Planes(NamedTuple):
    """Activations as `(n, c, s)`: strides of a channel and of a position; samples lie one after the other."""

    num: int
    channels: int
    positions: int
    stride_c: int
    stride_s: int


def on_its_device(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function's kernels launched where its first tensor lies; Triton by itself takes the current device.

    Example:
        >>> on_its_device(torch.relu)(torch.tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    @wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> R:
        with torch.cuda.device_of(next(value for value in args if isinstance(value, Tensor))):
            return function(*args, **options)

    return guarded


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
    positions = x.numel() // (num * channels) if num and channels else 0
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


def count_blocks(length: int, size: int) -> int:
    """Return how many blocks cover a length; `triton.cdiv` takes the host twenty times as long.

    Example:
        >>> count_blocks(65, 32)
        3
    """
    return -(-length // size)


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


def returns_in_passes(p: Planes) -> bool:
    """Tell whether the way back is faster in passes over the activations, though a sample's program could take it.

    Where samples are many and small, each reads the weights for little work of its own.

    Example:
        >>> [returns_in_passes(Planes(num, 128, 256, 1, 128)) for num in (128, 512)]
        [False, True]
        >>> returns_in_passes(Planes(512, 64, 1024, 1, 64))
        False
    """
    return p.num >= MANY_SAMPLES and p.channels * p.positions < _LARGE


def spreads(p: Planes, itemsize: int) -> bool:
    """Tell whether passes over the activations are faster though weights are few: samples are few and large.

    Example:
        >>> [spreads(Planes(num, 64, 3136, 1, 64), 2) for num in (32, 64)]
        [True, False]
    """
    return p.num <= FEW_SAMPLES and p.channels * p.positions * itemsize >= SPREAD


class Held(NamedTuple):
    """Tiles of a sample that is held in registers, their number, and whether it fills them all."""

    block: Block
    tiles: int
    full: bool


def held_block(p: Planes, itemsize: int, most_warps: int) -> Held | None:
    """Tiles of a sample that is held; `None` where it takes more than `HELD`, or less than half of its tiles.

    Nor where rows start anywhere, so that values come one by one, with a register each.

    Example:
        >>> held_block(Planes(8, 64, 1024, 1, 64), 2, 16)
        Held(block=Block(channels=64, positions=64, warps=16), tiles=16, full=True)
        >>> held_block(Planes(8, 64, 1025, 1, 64), 2, 16) is None  # a position too many
        True
    """
    if max(p.stride_c, p.stride_s) % _LOAD_BYTES:
        return None
    channels = power_of_two(p.channels)
    whole = channels * power_of_two(p.positions) * itemsize
    warps = min(most_warps, max(4, whole // (_WARP * _HELD_BYTES)))
    positions = warps * _WARP * _LOAD_BYTES // itemsize // channels
    tiles = count_blocks(p.positions, max(1, positions))
    padded = channels * positions * tiles
    # Half as many bytes of float32: beyond, the compiler moves registers to memory.
    if not positions or padded * itemsize * itemsize // 2 > HELD or padded > 2 * p.channels * p.positions:
        return None
    return Held(Block(channels, positions, warps), tiles, padded == p.channels * p.positions)


def sweep_block(p: Planes) -> Block:
    """Tiles of a program that goes over all positions of some channels of a sample."""
    # 128 bytes of neighboring channels in channels-last; a few rows otherwise.
    channels = min(power_of_two(p.channels), 64 if p.stride_c == 1 else 8)
    while channels > 8 and p.num <= FEW_SAMPLES and p.num * p.channels < _PROGRAMS * channels:
        channels //= 2
    positions = min(power_of_two(p.positions), 4096 // channels)
    # A short way has many programs, which are faster where fewer threads share their sums at the end.
    return Block(channels, positions, 2 if p.positions <= _SHORT else 4)


def stages(p: Planes, block: Block) -> int:
    """Return how many tiles a loop of the backward pass has on their way from memory at a time.

    Ahead of a short loop it does not pay, nor in the forward pass, which waits for one tensor instead of two.
    """
    return 4 if p.positions > 2 * block.positions else 1


def tile_block(p: Planes) -> Block:
    """Tiles of a program that takes just one."""
    if p.stride_c == 1:
        channels = min(power_of_two(p.channels), 128)
        return Block(channels, min(power_of_two(p.positions), 4096 // channels), 4)
    positions = min(power_of_two(p.positions), 1024)
    return Block(min(power_of_two(p.channels), max(1, 4096 // positions)), positions, 4)


def sample_parts(num: int) -> int:
    """Return in how many parts the gradients of the parameters are summed over so many samples.

    A program goes through its samples 32 at a time, which takes long where they are many.

    Example:
        >>> [sample_parts(num) for num in (1, 128, 256, 512, 5000)]
        [1, 1, 2, 4, 8]
    """
    return max(1, min(_MOST_PARTS, num // _PART))
