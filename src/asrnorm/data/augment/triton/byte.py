"""Images as kernels read and write them: bytes, or float32 values in [0, 1] that are rounded to bytes on the way in."""

import triton
import triton.language as tl


@triton.jit
def read_byte(source, inside, UNIT: tl.constexpr):
    """Bytes as int32, or the nearest bytes of values in [0, 1]."""
    if UNIT:
        # Adding 1.5 * 2**23 leaves no bits for a fraction, half to even.
        scaled = tl.load(source, mask=inside, other=0.0) * 255.0
        value = (tl.minimum(tl.maximum(scaled, 0.0), 255.0) + 12582912.0) - 12582912.0
    else:
        value = tl.load(source, mask=inside, other=0)
    return value.to(tl.int32)


@triton.jit
def write_byte(target, x, inside, units, UNIT: tl.constexpr):
    """Bytes, or what a table says each becomes: whoever made it divided as its device divides."""
    if UNIT:
        tl.store(target, tl.load(units + x, mask=inside), mask=inside)
    else:
        tl.store(target, x.to(tl.uint8), mask=inside)
