"""How activations are laid out in memory, and the block sizes and options that kernels are launched with."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from asrnorm.kernels.flat_params import Weights

P = ParamSpec("P")
R = TypeVar("R")

SAMPLE_CHANNELS = 128
"""Most channels of a layer that runs fused, one program per sample, where every program reads all weights."""

MANY_SAMPLES = 256
"""From this batch size on, a few warps per sample fill a GPU."""

FEW_SAMPLES = 32
"""Up to this batch size, one program per sample leaves three quarters of a GPU idle."""

LARGE_SAMPLE = 1 << 18
"""Bytes of a sample from which on an idle GPU costs more than the launches of separate passes."""

REGISTER_BYTES = 1 << 17
"""Most bytes of a sample, padded to whole tiles, that its program keeps in registers; 0 reads every sample twice."""

TILE = 32
"""Rows and columns of a tile of the networks' matrices, and terms of a product that are read at a time."""

_PER_THREAD = 16  # elements of a tile per thread: two 16-byte loads of bfloat16 in flight for each tensor
_LOAD_BYTES = 16  # the longest load of a thread; Triton asks that a stride be a multiple of it, in elements
_REGISTER_BYTES_PER_THREAD = 256  # of each tensor: 64 registers
_LARGE = 1 << 16  # elements of a sample from which on more warps pay
_PROGRAMS = 256  # that fill a GPU
_SHORT = 256  # positions that two warps sweep
_WARP = 32
_SAMPLES_PER_PART, _MAX_PARTS = 128, 8  # of the sum over samples
_FORWARD_WARPS, _BACKWARD_WARPS = 16, 8
_ROW_WARPS, _ROW_CHANNELS = 32, 64
_CROWDED_WARPS = 4  # in the backward pass of many samples, whose programs wait for each other
_MAX_WEIGHTS = 8192  # of a matrix that a fused program holds at a time
_WEIGHTS_PER_WARP = 1024


class Layout(NamedTuple):
    """Dense activations as `(n, c, s)`, with the strides of a channel and of a position; samples are consecutive."""

    num: int
    channels: int
    positions: int
    stride_c: int
    stride_s: int

    @property
    def nc(self) -> int:
        """Number of channels of all samples together."""
        return self.num * self.channels


def on_tensor_device(function: Callable[P, R]) -> Callable[P, R]:
    """Launch a function's kernels on the device of its first tensor; Triton alone would take the current device."""

    @wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> R:
        first = args[0] if isinstance(args[0], Tensor) else next(value for value in args if isinstance(value, Tensor))
        if not first.is_cuda or first.get_device() == torch.cuda.current_device():  # entering a device takes longer
            return function(*args, **options)
        with torch.cuda.device_of(first):
            return function(*args, **options)

    return guarded


def memory_format(x: Tensor) -> torch.memory_format | None:
    """Return the dense memory format of `x`, `None` where it is neither contiguous nor channels-last."""
    if x.is_contiguous():
        return torch.contiguous_format
    for rank, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if x.ndim == rank and x.is_contiguous(memory_format=last):
            return last
    return None


def dense(x: Tensor) -> Tensor:
    """Return `x` in a dense memory format, copied only where it has none."""
    return x if memory_format(x) is not None else x.contiguous()


def dense_like(x: Tensor, model: Tensor) -> Tensor:
    """Return `x` in the memory format of `model`, which is dense."""
    layout = memory_format(model)
    assert layout is not None, "model went through dense()"
    return x.contiguous(memory_format=layout)


def empty_dense(x: Tensor) -> Tensor:
    """Return an empty tensor with the memory format of `dense(x)`."""
    if memory_format(x) is None:
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    return torch.empty_like(x)


def layout_of(x: Tensor) -> Layout:
    """Return the layout of dense activations."""
    num, channels = x.shape[:2]
    positions = x.numel() // (num * channels) if num and channels else 0
    if memory_format(x) is torch.contiguous_format:
        return Layout(num, channels, positions, positions, 1)
    return Layout(num, channels, positions, 1, channels)


def is_traced(x: Tensor) -> bool:
    """Tell whether a call on `x` is recorded, faked or transformed, so that it must be a registered operator.

    Example:
        >>> is_traced(torch.zeros(1)), torch.func.vmap(lambda x: x + is_traced(x))(torch.zeros(2))
        (False, tensor([1., 1.]))
    """
    if torch.compiler.is_compiling() or type(x) not in (Tensor, torch.nn.Parameter):
        return True
    # Recording and faking push a dispatch mode, vmap and its kin a level.
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.maybe_current_level() is not None


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is not less than `number`."""
    return 1 << max(0, number - 1).bit_length()


def count_blocks(length: int, size: int) -> int:
    """Return how many blocks cover a length; `triton.cdiv` takes the host twenty times as long."""
    return -(-length // size)


class Block(NamedTuple):
    """A tile of channels and positions, and the warps that work on it."""

    channels: int
    positions: int
    warps: int

    def options(self) -> dict[str, Any]:
        """Return the block as the kernels take it."""
        return {"BLOCK_C": self.channels, "BLOCK_S": self.positions, "num_warps": self.warps}


def sample_block(x: Layout, max_warps: int) -> Block:
    """Return the tile of a program for a whole sample: all channels, as many positions as fill its threads."""
    channels = power_of_two(x.channels)
    whole = channels * power_of_two(x.positions)
    warps = min(max_warps if whole >= _LARGE else 8, max(4, whole // (_WARP * _PER_THREAD)))
    positions = max(1, min(power_of_two(x.positions), warps * _WARP * _PER_THREAD // channels))
    return Block(channels, positions, warps)


class RegisterTiles(NamedTuple):
    """A sample in registers: the tile, the number of tiles, and whether the sample fills them all."""

    block: Block
    tiles: int
    full: bool


def register_tiles(x: Layout, itemsize: int, max_warps: int) -> RegisterTiles | None:
    """Return the tiles of a sample that fits into registers; `None` where it needs more than `REGISTER_BYTES`.

    Also `None` where more than half of the tiles would be padding, and where rows are not aligned: such values are
    loaded one by one, into a register each.
    """
    if max(x.stride_c, x.stride_s) % _LOAD_BYTES:
        return None
    channels = power_of_two(x.channels)
    whole = channels * power_of_two(x.positions) * itemsize
    warps = min(max_warps, max(4, whole // (_WARP * _REGISTER_BYTES_PER_THREAD)))
    positions = warps * _WARP * _LOAD_BYTES // itemsize // channels
    tiles = count_blocks(x.positions, max(1, positions))
    padded = channels * positions * tiles
    # Half as many bytes of float32: beyond, the compiler moves registers to memory.
    if not positions or padded * itemsize * itemsize // 2 > REGISTER_BYTES or padded > 2 * x.channels * x.positions:
        return None
    return RegisterTiles(Block(channels, positions, warps), tiles, padded == x.channels * x.positions)


def sweep_block(x: Layout) -> Block:
    """Return the tile of a program that sweeps all positions of some channels of a sample."""
    # 128 bytes of neighboring channels in channels-last; a few rows otherwise.
    channels = min(power_of_two(x.channels), 64 if x.stride_c == 1 else 8)
    while channels > 8 and x.num <= FEW_SAMPLES and x.num * x.channels < _PROGRAMS * channels:
        channels //= 2
    positions = min(power_of_two(x.positions), 4096 // channels)
    # Short sweeps come in many programs, which are faster where fewer threads share the final sums.
    return Block(channels, positions, 2 if x.positions <= _SHORT else 4)


def sweep_grid(x: Layout, block: Block) -> tuple[int, int]:
    """Return the grid of programs that sweep all positions of some channels of a sample."""
    return x.num, count_blocks(x.channels, block.channels)


def tile_block(x: Layout) -> Block:
    """Return the tile of a program that takes a single one."""
    if x.stride_c == 1:
        channels = min(power_of_two(x.channels), 128)
        return Block(channels, min(power_of_two(x.positions), 4096 // channels), 4)
    positions = min(power_of_two(x.positions), 1024)
    return Block(min(power_of_two(x.channels), max(1, 4096 // positions)), positions, 4)


def tile_grid(x: Layout, block: Block) -> tuple[int, int, int]:
    """Return the grid of one program per tile."""
    return x.num, count_blocks(x.channels, block.channels), count_blocks(x.positions, block.positions)


def stages(x: Layout, block: Block) -> int:
    """Return how many tiles a loop of the backward pass prefetches.

    Prefetching does not pay in a short loop, nor in the forward pass, which waits for one tensor instead of two.
    """
    return 4 if x.positions > 2 * block.positions else 1


def sample_parts(num: int) -> int:
    """Return the number of partial sums in which the gradients of the parameters are summed over `num` samples.

    A program reads its samples 32 at a time, which takes long for a large batch.
    """
    return max(1, min(_MAX_PARTS, num // _SAMPLES_PER_PART))


class LayerShape(NamedTuple):
    """Sizes and switches of an ASR-Norm layer on an input, from which every launch follows.

    Args:
        x: layout of the input.
        H: hidden units of the standardization networks.
        R: hidden units of the rescaling networks.
        L: length of a lambda: 1, or one per channel.
        stan: whether the layer has standardization networks.
        rescale: whether the layer has rescaling networks.
        itemsize: bytes of an element of the input.
    """

    x: Layout
    H: int
    R: int
    L: int
    stan: bool
    rescale: bool
    itemsize: int

    @classmethod
    def of(cls, x: Tensor, w: Weights) -> "LayerShape":
        """Return the shape of a layer with weights `w` on a dense input."""
        has_nets = w.enc_w is not None, w.beta_enc_w is not None
        return cls(layout_of(x), w.hidden, w.rescale_hidden, w.logits, *has_nets, x.itemsize)

    @property
    def fused(self) -> bool:
        """Whether the forward pass is one kernel; separate passes are faster for few, large samples.

        Example:
            >>> [LayerShape(Layout(num, 64, 3136, 1, 64), 32, 4, 1, True, True, 2).fused for num in (32, 64)]
            [False, True]
        """
        few_large = self.x.num <= FEW_SAMPLES and self.x.channels * self.x.positions * self.itemsize >= LARGE_SAMPLE
        return self.x.channels <= SAMPLE_CHANNELS and not few_large

    @property
    def fused_backward(self) -> bool:
        """Whether the backward pass is one kernel too.

        Separate passes are faster for many, small samples, each of which would read the weights for little work.

        Example:
            >>> shapes = Layout(128, 128, 256, 1, 128), Layout(512, 128, 256, 1, 128), Layout(512, 64, 1024, 1, 64)
            >>> [LayerShape(x, 32, 4, 1, True, True, 2).fused_backward for x in shapes]
            [True, False, True]
        """
        many_small = self.x.num >= MANY_SAMPLES and self.x.channels * self.x.positions < _LARGE
        return self.fused and not many_small

    @property
    def step(self) -> int:
        """Stride of a lambda from channel to channel: 0 where one lambda serves all channels."""
        return int(self.L > 1)

    @property
    def logit_rows(self) -> int:
        """Rows of the lambdas' gradients: one per sample, or one per sample and tile of channels."""
        per_sample = self.fused_backward or self.step
        return self.x.num if per_sample else self.x.num * count_blocks(self.x.channels, TILE)

    @property
    def precision(self) -> str:
        """Precision of the networks' matrix products."""
        # Three TF32 products carry 22 bits of each factor: little error beside the rounding of a 16-bit output.
        return "ieee" if self.itemsize == 4 else "tf32x3"

    def network_sizes(self) -> tuple[int, int, int, int, int]:
        """Return the sizes as the kernels of the networks take them."""
        return self.x.num, self.x.channels, self.H, self.R, self.x.nc

    def fused_sizes(self) -> tuple[int, ...]:
        """Return the sizes and strides as the fused kernels take them."""
        return *self.x[:3], self.H, self.R, *self.x[3:]

    def forward_options(self, relu: bool) -> dict[str, Any]:
        """Return the options of the fused forward kernel."""
        resident = register_tiles(self.x, self.itemsize, _FORWARD_WARPS)
        # Where a channel's positions are consecutive, longer rows of a tile pay for more warps, up to the registers.
        in_rows = self.x.stride_s == 1 and self.x.channels <= _ROW_CHANNELS
        max_warps = _ROW_WARPS if in_rows else _FORWARD_WARPS
        block = resident.block if resident else sample_block(self.x, max_warps)
        options = self._fused_options(block, min(_MAX_WEIGHTS, _WEIGHTS_PER_WARP * block.warps), relu)
        return {
            **options, "TILES": resident.tiles if resident else 0, "FULL": resident is not None and resident.full,
            "RAW": self.fused_backward,
            "BLOCKS_H": count_blocks(self.H, options["BLOCK_H"]), "BLOCKS_R": count_blocks(self.R, options["BLOCK_R"]),
        }  # fmt: skip

    def backward_options(self, relu: bool) -> dict[str, Any]:
        """Return the options of the fused backward kernel."""
        block = sample_block(self.x, _BACKWARD_WARPS if self.x.num < MANY_SAMPLES else _CROWDED_WARPS)
        return {**self._fused_options(block, _MAX_WEIGHTS, relu), "STAGES": stages(self.x, block)}

    def _fused_options(self, block: Block, weights: int, relu: bool) -> dict[str, Any]:
        rows = max(1, weights // block.channels)
        hidden = {"BLOCK_H": min(rows, power_of_two(self.H)), "BLOCK_R": min(rows, power_of_two(self.R))}
        switches = {"STAN": self.stan, "RESCALE": self.rescale, "STEP": self.step, "RELU": relu}
        return {**switches, **block.options(), **hidden}

    def network_options(self) -> dict[str, Any]:
        """Return the options of the kernels of the networks."""
        switches = {"STAN": self.stan, "RESCALE": self.rescale, "PRECISION": self.precision}
        return {**switches, "BLOCK_N": self._rows, "BLOCK": TILE, "BLOCK_K": TILE, "num_warps": 4}

    def network_grid(self, width: int) -> tuple[int, int]:
        """Return the tiles of a matrix with a row per sample and `width` columns."""
        return count_blocks(self.x.num, self._rows), count_blocks(width, TILE)

    @property
    def _rows(self) -> int:
        """Samples of a tile of the networks' matrices; on tensor cores more and smaller tiles are faster."""
        return 32 if self.precision == "ieee" else 16
