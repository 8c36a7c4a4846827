"""Pixel functions for kernels: bytes in and out, gray, blend and hue, bit-identical to `data/augment/color.py`.

Kernels that use them must turn floating-point fusion off. Pixels are bytes, or float32 values in [0, 1] that are
rounded to bytes when read; kernels compute on them as int32. Each line has the precision of the tensor operation it
mirrors. Two quotients that `color.py` computes in float64 and rounds to float32 are divided in float32 here, which
rounds to the same, because float64 has more than twice the digits. Truncated numbers are never negative, so truncation
is floor.
"""

import triton
import triton.language as tl


@triton.jit
def read_byte(source, inside, UNIT: tl.constexpr):
    """Load bytes as int32; with UNIT, values in [0, 1] as the nearest bytes."""
    if UNIT:
        # Adding 1.5 * 2**23 leaves no bits for a fraction, half to even.
        scaled = tl.load(source, mask=inside, other=0.0) * 255.0
        value = (tl.minimum(tl.maximum(scaled, 0.0), 255.0) + 12582912.0) - 12582912.0
    else:
        value = tl.load(source, mask=inside, other=0)
    return value.to(tl.int32)


@triton.jit
def write_byte(target, x, inside, units, UNIT: tl.constexpr):
    """Store bytes; with UNIT, the float32 that the table `units` has for each byte."""
    if UNIT:
        tl.store(target, tl.load(units + x, mask=inside), mask=inside)
    else:
        tl.store(target, x.to(tl.uint8), mask=inside)


@triton.jit
def gray_of(red, green, blue):
    """Return `(19595 R + 38470 G + 7471 B + 32768) >> 16`."""
    return (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16


@triton.jit
def blend(degenerate, x, factor):
    """Return `d + f (x - d)` in float32, clipped and truncated."""
    low = degenerate.to(tl.float32)
    mixed = (x.to(tl.float32) - low) * factor + low
    return tl.minimum(tl.maximum(mixed, 0.0), 255.0).to(tl.int32)


@triton.jit
def turn_hue(red, green, blue, steps):
    """Turn the hue byte of colors, bytes as int32, by `steps`, one int32 from 0 to 255."""
    value = tl.maximum(tl.maximum(red, green), blue)
    spread = value - tl.minimum(tl.minimum(red, green), blue)
    # Where all channels are equal the numerators are zero, and so hue and saturation, whatever the divisor.
    share = tl.div_rn(spread.to(tl.float32), tl.maximum(value, 1).to(tl.float32))
    saturation = (share.to(tl.float64) * 255.0).to(tl.int32)
    divisor = tl.maximum(spread, 1).to(tl.float32)
    from_red = tl.div_rn((value - red).to(tl.float32), divisor)
    from_green = tl.div_rn((value - green).to(tl.float32), divisor)
    from_blue = tl.div_rn((value - blue).to(tl.float32), divisor)
    in_red, in_green = red == value, green == value
    start = tl.where(in_red, from_blue, tl.where(in_green, from_red, from_green))
    stop = tl.where(in_red, from_green, tl.where(in_green, from_blue, from_red))
    sector = tl.where(in_red, 0, tl.where(in_green, 2, 4))
    turn = (sector.to(tl.float64) + start.to(tl.float64) - stop.to(tl.float64)).to(tl.float32)
    turn = turn.to(tl.float64) / 6.0 + 1.0
    part = (turn - turn.to(tl.int32).to(tl.float64)).to(tl.float32)
    hue = ((part.to(tl.float64) * 255.0).to(tl.int32) + steps) & 255
    return _to_rgb(hue, saturation, value)


@triton.jit
def _to_rgb(hue, saturation, value):
    sector = hue * 6 // 255
    part = tl.div_rn((hue * 6 - sector * 255).to(tl.float32), tl.full(hue.shape, 255.0, tl.float32))
    fraction = tl.div_rn(saturation.to(tl.float32), tl.full(hue.shape, 255.0, tl.float32))
    value64, fraction64 = value.to(tl.float64), fraction.to(tl.float64)
    # Half away from zero, as C's round.
    lowest = (value64 * (1.0 - fraction64) + 0.5).to(tl.int32)
    falling = (value64 * (1.0 - (fraction * part).to(tl.float64)) + 0.5).to(tl.int32)
    rising = (value64 * (1.0 - fraction64 * (1.0 - part.to(tl.float64))) + 0.5).to(tl.int32)
    red = _choose(sector % 6, value, falling, lowest, rising)
    green = _choose((sector + 4) % 6, value, falling, lowest, rising)
    blue = _choose((sector + 2) % 6, value, falling, lowest, rising)
    return red, green, blue


@triton.jit
def _choose(sector, value, falling, lowest, rising):
    # Red in each of the six sectors; green lags by two, blue by four.
    low = tl.where(sector == 1, falling, tl.where(sector == 4, rising, lowest))
    return tl.where((sector == 0) | (sector == 5), value, low)
