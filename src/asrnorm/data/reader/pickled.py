"""Pickles of plain data and byte arrays, read without calling anything they name.

A pickle is a program. Of its instructions only those that build numbers, text, lists, dictionaries and tuples are let
through, and the few names by which NumPy rebuilds an array stand for inert records here, which are turned into arrays
afterwards and only where their size is the size of their bytes.
"""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from asrnorm.core.errors import InputError, first_line
from asrnorm.data.reader.stream import read_bytes

_ALLOWED = frozenset(
    {
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "LIST",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "GLOBAL",
        "STACK_GLOBAL",
        "REDUCE",
        "BUILD",
    }
)
_MEMO_WRITES = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Array:
    """What NumPy's `_reconstruct` would return, before and after its state is set."""

    state: Any = None

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def to_array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return the array; anything but bytes in C order is refused."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise ValueError("an array without its state")
        _, shape, dtype, fortran, data = self.state
        if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", b"u1"):
            raise ValueError("an array that does not hold bytes")
        if fortran or not isinstance(data, bytes) or not isinstance(shape, tuple):
            raise ValueError("an array in another layout")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of shape {shape}")
        return np.frombuffer(data, np.uint8).reshape(shape)  # reshape refuses a shape of another size


class _Dtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None: ...


class _Encoder:
    """Stands for `_codecs.encode`, with which Python 3 writes bytes into pickles of protocol 2."""

    def __call__(self, text: Any, encoding: Any = None) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin-1")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a function with a state")


_NAMES: dict[tuple[str, str], Any] = {
    **{(module, "_reconstruct"): _Array for module in _MULTIARRAY},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encoder(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def read_pickled(path: Path, limit: int) -> Any:
    """Return what a pickle of plain data holds; byte arrays at the top level of a dictionary become NumPy arrays.

    Text of Python 2 comes back as bytes.

    Args:
        path: the file.
        limit: the most bytes to accept.

    Raises:
        InputError: not a pickle, damaged, or one that asks for more than plain data.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "meta"
        ...     _ = path.write_bytes(pickle.dumps({"names": ["cat"]}))
        ...     read_pickled(path, 1000)
        {'names': ['cat']}
    """
    data = read_bytes(path, limit)
    try:
        _check_program(data)
        value = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if isinstance(value, dict):
            return {key: item.to_array() if isinstance(item, _Array) else item for key, item in value.items()}
    except Exception as error:  # damaged pickles raise nearly anything
        raise InputError(f"{path}: not a pickle of plain data and byte arrays ({first_line(error)})") from None
    return value


def _check_program(data: bytes) -> None:
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        if instruction.name not in _ALLOWED:
            raise ValueError(f"it uses the instruction {instruction.name}")
        # The memo is a table as long as its largest index: an absurd index would take gigabytes.
        if instruction.name in _MEMO_WRITES and not 0 <= int(argument or 0) <= count:
            raise ValueError("its memo is out of order")
