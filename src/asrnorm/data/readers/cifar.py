"""CIFAR-10 in both published forms: binary batches of 3,073-byte records, and pickled Python batches."""

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

_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_TEXT = "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE"
_NUMBERS = "INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT"
_LITERALS = frozenset(f"{_TEXT} BINUNICODE8 {_NUMBERS} GLOBAL".split())
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
# How many objects on the stack go into a container; `None` is all from the last mark.
_SIZES: dict[str, int | None] = {"APPEND": 1, "SETITEM": 2, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SIZES |= dict.fromkeys(("APPENDS", "SETITEMS", "TUPLE", "LIST", "DICT"))
_EXTENDING = ("APPEND", "APPENDS", "SETITEM", "SETITEMS")  # the container below them
_LONGEST_NAME = 100  # of a module and its function
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
        batch = _interpret(pickled)
        if not isinstance(batch, list):
            raise ValueError(f"it holds a {type(batch).__name__} in place of a dictionary")
        found = {name: value for key, value in zip(batch[::2], batch[1::2], strict=True) if (name := _to_name(key))}
        planes, labels = _to_array(found["data"]), found["labels"]
        if labels and labels[0] in _RECONSTRUCT:
            labels = _to_array(labels).tolist()
    except Exception as error:  # damaged pickles raise nearly anything
        raise InputError(f"{path}: not a pickle of plain data and byte arrays ({first_line(error)})") from None
    if planes.ndim != 2 or planes.shape[1] != _PIXELS or not len(planes):
        raise InputError(f"{path}: expected 'data' to be bytes of shape (n, {_PIXELS})")
    if (
        not isinstance(labels, list)
        or len(labels) != len(planes)
        or not all(type(v) is int and abs(v) < 1 << 31 for v in labels)
    ):
        raise InputError(f"{path}: expected 'labels' to be a list of {len(planes):,} whole numbers")
    return _to_images(path, planes, np.array(labels, np.int64))


def _to_images(
    path: Path, planes: NDArray[np.uint8], labels: NDArray[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if labels.min() < 0 or labels.max() >= len(CIFAR10_CLASSES):
        raise InputError(f"{path}: labels from {labels.min()} to {labels.max()}; CIFAR-10 has 0 to 9")
    images = np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return images, labels.astype(np.int64)


def _interpret(pickled: bytes) -> Any:
    """Return what a pickle describes, without making any object of it.

    Tuples, lists and dictionaries become lists, of keys and values by turns; a call becomes a list of the name of the
    function, its arguments and, if there is one, the state of the result. So nothing is run, and nothing is hashed.
    """
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        name = opcode.name
        if count > _MAX_OPCODES:
            raise ValueError(f"it has more than {_MAX_OPCODES:,} opcodes")
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append([])
        elif name in _SIZES:
            size = _SIZES[name]
            start = marks.pop() if size is None else len(stack) - size
            items = stack[start:]
            del stack[start:]
            if name in _EXTENDING:
                stack[-1].extend(items)
            else:
                stack.append(items)
        elif name == "STACK_GLOBAL":
            module, function = stack.pop(-2), stack.pop()
            if len(module) + len(function) > _LONGEST_NAME:  # names of names would double in length
                raise ValueError("it has a long name")
            stack.append(f"{module} {function}")
        elif name == "REDUCE":
            function, arguments = stack.pop(-2), stack.pop()
            # By this function Python 3 writes bytes into pickles of protocol 2.
            stack.append(arguments[0].encode("latin-1") if function == "_codecs encode" else [function, arguments])
        elif name == "BUILD":
            state = stack.pop()
            stack[-1].append(state)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"it uses the opcode {name}")
    return stack.pop()


def _to_name(key: Any) -> str:
    """Return a key as text; Python 2 writes bytes."""
    return key.decode("latin-1") if isinstance(key, bytes) else key if isinstance(key, str) else ""


def _to_array(value: list[Any]) -> NDArray[np.uint8]:
    """Return the array of a call; raise unless it holds bytes in C order and as many as its shape says."""
    function, _, (_, shape, (dtype, (code, *_), *_), fortran, data) = value
    if function not in _RECONSTRUCT or dtype != "numpy dtype" or code not in ("u1", b"u1"):
        raise ValueError("an array that does not hold bytes")
    if fortran or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array in another layout")
    return np.frombuffer(data.encode("latin-1") if isinstance(data, str) else data, np.uint8).reshape(shape)
