"""`enhance.py` inside kernels: gray and blend of bytes held as int32, equal to the bit where fp fusion is off."""

import triton
import triton.language as tl


@triton.jit
def gray_of(red, green, blue):
    """`(19595 R + 38470 G + 7471 B + 32768) >> 16`."""
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


@triton.jit
def blend(degenerate, x, factor):
    """`d + f (x - d)` in float32, clipped and truncated."""
    low = degenerate.to(tl.float32)
    mixed = (x.to(tl.float32) - low) * factor + low
    return tl.minimum(tl.maximum(mixed, 0.0), 255.0).to(tl.int32)
