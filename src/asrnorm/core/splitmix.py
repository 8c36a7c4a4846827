"""SplitMix64 (Steele, Lea and Flood, 2014) on tensors: random bits as a hash of a key and an index, without a state."""

from torch import Tensor

# As signed 64-bit integers, which wrap around in torch.
GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
_WORD = 64


def random_bits(position: Tensor, bits: int) -> Tensor:
    """Return whole numbers below `2**bits`; number i of the stream of a key is at position `key + (i + 1) * GOLDEN`."""
    x = (position ^ _shift(position, 30)).mul_(_FIRST)
    x = (x ^ _shift(x, 27)).mul_(_SECOND)
    x = x ^ _shift(x, 31)
    return _shift(x, _WORD - bits) if bits < _WORD else x


def _shift(x: Tensor, count: int) -> Tensor:
    """Shift right and fill with zeros; torch's `>>` fills with the sign bit."""
    return (x >> count).bitwise_and_((1 << (_WORD - count)) - 1)
