"""CIFAR-10 in both published forms: binary batches of 3,073-byte records, and pickled Python batches."""

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, first_line
from asrnorm.data.readers.arrays import read_bytes

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
_PIXELS = 3 * SIDE * SIDE
MAX_BYTES = 1 << 28  # a published batch has 30,730,000

# The opcodes of a pickled batch. Those in _REUSABLE never create tuples, so a pickle may use their results repeatedly.
_TEXT = "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8"
_UNICODE = "UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8"
_OBJECTS = "EMPTY_LIST LIST EMPTY_DICT DICT GLOBAL STACK_GLOBAL REDUCE"
_REUSABLE = frozenset(f"{_TEXT} {_UNICODE} {_OBJECTS}".split())
_NUMBERS = "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT"
_STRUCTURE = "PROTO FRAME MARK APPEND APPENDS SETITEM SETITEMS BUILD STOP EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"
_MEMO_WRITES = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_MEMO_READS = ("GET", "BINGET", "LONG_BINGET")
_OPCODES = _REUSABLE.union(f"{_NUMBERS} {_STRUCTURE}".split(), _MEMO_WRITES, _MEMO_READS)
_MAX_OPCODES = 1 << 18  # labels and names of 10,000 images take 30,000 to 90,000, depending on the protocol


def read_cifar_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels of a binary batch; a record is a label byte and three color planes."""
    data = read_bytes(path, MAX_BYTES)
    if not data or len(data) % (_PIXELS + 1):
        raise InputError(
            f"{path}: {len(data):,} bytes are not a multiple of the {_PIXELS + 1:,}-byte record; fetch the file again"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, _PIXELS + 1)
    return _to_images(path, records[:, 1:], records[:, 0])


def read_cifar_python(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images `(n, 32, 32, 3)` and labels of a pickled batch, without calling anything that the pickle names."""
    pickled = read_bytes(path, MAX_BYTES)
    try:
        _check_opcodes(pickled)
        batch = _Unpickler(io.BytesIO(pickled), encoding="bytes").load()
        if not isinstance(batch, dict):
            raise ValueError(f"it holds a {type(batch).__name__} in place of a dictionary")
        data, labels = (batch.get(key.encode(), batch.get(key)) for key in ("data", "labels"))
        planes = data.to_array() if isinstance(data, _Array) else None
        if isinstance(labels, _Array):
            labels = labels.to_array().tolist()
    except Exception as error:  # damaged pickles raise nearly anything
        raise InputError(f"{path}: not a pickle of plain data and byte arrays ({first_line(error)})") from None
    if planes is None or planes.ndim != 2 or planes.shape[1] != _PIXELS or not len(planes):
        raise InputError(f"{path}: expected 'data' to be bytes of shape (n, {_PIXELS})")
    if not isinstance(labels, list) or len(labels) != len(planes) or not all(type(v) is int for v in labels):
        raise InputError(f"{path}: expected 'labels' to be a list of {len(planes):,} whole numbers")
    return _to_images(path, planes, np.array(labels, np.int64))


def _to_images(
    path: Path, planes: NDArray[np.uint8], labels: NDArray[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if labels.min() < 0 or labels.max() >= len(CIFAR10_CLASSES):
        raise InputError(f"{path}: labels from {labels.min()} to {labels.max()}; CIFAR-10 has 0 to 9")
    images = np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return images, labels.astype(np.int64)


def _check_opcodes(pickled: bytes) -> None:
    """Raise unless the pickle consists of a bounded number of harmless opcodes."""
    reusable: dict[int, bool] = {}  # by memo index
    previous = ""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        name = opcode.name
        if name not in _OPCODES:
            raise ValueError(f"it uses the opcode {name}")
        if count > _MAX_OPCODES:
            raise ValueError(f"it has more than {_MAX_OPCODES:,} opcodes")
        # Multiples of 2**61 - 1 have equal hashes: as keys, they would make a dictionary slow.
        if isinstance(argument, int) and not -(1 << 31) <= argument < 1 << 32:
            raise ValueError("it holds a number of more than 32 bits")
        if name in _MEMO_WRITES:
            index = len(reusable) if argument is None else int(argument)
            # The memo is a table as long as its largest index: an absurd index would take gigabytes.
            if not 0 <= index <= count:
                raise ValueError("its memo is out of order")
            reusable[index] = previous in _REUSABLE
        # Nested tuples that are reused take exponential time to hash as the key of a dictionary.
        elif name in _MEMO_READS and not reusable.get(int(argument or 0)):
            raise ValueError("it uses a tuple twice")
        previous = name


class _Array:
    """Replaces the array that NumPy's `_reconstruct` returns, before and after its state is set."""

    state: Any = None

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def to_array(self) -> NDArray[np.uint8]:
        """Return the array; raise unless it holds bytes in C order and as many as its shape says."""
        _, shape, dtype, fortran, data = self.state
        if not isinstance(dtype, _Dtype) or dtype.code not in ("u1", b"u1"):
            raise ValueError("an array that does not hold bytes")
        if fortran or not isinstance(data, bytes) or not isinstance(shape, tuple):
            raise ValueError("an array in another layout")
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError("an array whose shape is not a tuple of sizes")
        return np.frombuffer(data, np.uint8).reshape(shape)  # raises if the sizes differ


class _Dtype:
    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None: ...


class _Encoder:
    """Replaces `_codecs.encode`, by which Python 3 writes bytes into pickles of protocol 2."""

    def __call__(self, text: Any, encoding: Any = None) -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin-1")

    def __setstate__(self, state: Any) -> None:  # without it, a pickle could set attributes of this object
        raise pickle.UnpicklingError("a function with a state")


_GLOBALS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Encoder(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _GLOBALS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None
