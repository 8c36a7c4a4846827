"""Bytes of a plain or compressed file, no more of them than the caller can use."""

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, Any

from asrnorm.core.errors import InputError

_BLOCK = 1 << 20
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open}


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a file, decompressed where its first bytes say gzip or bzip2.

    Args:
        path: the file; its ending does not matter.
        limit: the most bytes to accept after decompression.

    Raises:
        InputError: the file cannot be opened, is damaged, or holds more than `limit` bytes.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "text"
        ...     _ = path.write_bytes(gzip.compress(b"abc"))
        ...     read_bytes(path, 3)
        b'abc'
    """
    try:
        with path.open("rb") as raw:
            signature = raw.read(2)
        with _OPENERS.get(signature, open)(path, "rb") as stream:
            data = _read_at_most(stream, limit + 1)
    except (EOFError, zlib.error, lzma.LZMAError):
        raise InputError(f"{path}: the compressed data are damaged or end too early; fetch the file again") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if len(data) > limit:
        raise InputError(f"{path}: holds more than the {limit:,} bytes such a file may have")
    return data


def _read_at_most(stream: IO[bytes], limit: int) -> bytes:
    # In blocks: a single read(limit) would allocate the limit even for a file of three bytes.
    blocks = []
    while limit > 0 and (block := stream.read(min(_BLOCK, limit))):
        blocks.append(block)
        limit -= len(block)
    return b"".join(blocks)
