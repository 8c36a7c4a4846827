"""Our MATLAB reader agrees with SciPy's writer and reader, and stays calm where theirs does not."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from asrnorm.core.errors import InputError
from asrnorm.data.reader.matlab import read_matlab
from helpers.published import noise

DTYPES = ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def everything(name, shape, dtype):
    return True


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 3), (4, 3, 2, 5), (0, 3)])
def test_values_equal_those_of_scipy(tmp_path, compress, dtype, shape):
    path = tmp_path / "x.mat"
    values = (noise(*shape).astype(np.int64) % 100).astype(dtype)
    savemat(path, {"first": values, "a_long_name_for_an_array": np.arange(7.0)}, do_compression=compress)
    arrays, expected = read_matlab(path, everything), loadmat(path)
    assert list(arrays) == ["first", "a_long_name_for_an_array"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])
        assert array.dtype == expected[name].dtype


def test_values_larger_than_a_block_are_unpacked_whole(tmp_path):
    path = tmp_path / "x.mat"
    for values in (noise(1000, 700), np.zeros((1000, 700), np.uint8)):
        savemat(path, {"x": values}, do_compression=True)
        np.testing.assert_array_equal(read_matlab(path, everything)["x"], values)


def test_text_cells_and_complex_numbers_are_passed_over(tmp_path):
    path = tmp_path / "x.mat"
    cell = np.array([1, "a"], object)
    savemat(path, {"text": "hello", "cell": cell, "z": np.array([1j]), "s": {"a": 1}, "x": np.ones((1, 2))})
    assert list(read_matlab(path, everything)) == ["x"]


def test_what_is_not_accepted_is_not_read(tmp_path):
    path = tmp_path / "x.mat"
    asked = []

    def accept(name, shape, dtype):
        asked.append((name, shape, dtype))
        return name == "b"

    savemat(path, {"a": noise(2, 3), "b": np.ones((1, 2))}, do_compression=True)
    assert list(read_matlab(path, accept)) == ["b"]
    assert asked == [("a", (2, 3), "uint8"), ("b", (1, 2), "float64")]


def matrix(endian, data, shape=(1, 4), size=None):
    """A uint8 array named x, built by hand from the description of the format."""
    flags = struct.pack(f"{endian}4I", 6, 8, 9, 0)
    dimensions = struct.pack(f"{endian}2I", 5, 8) + struct.pack(f"{endian}2i", *shape)
    name = struct.pack(f"{endian}I", 1 << 16 | 1) + b"x\0\0\0"
    values = struct.pack(f"{endian}2I", 2, len(data) if size is None else size) + data
    body = flags + dimensions + name + values
    return struct.pack(f"{endian}2I", 14, len(body)) + body


def header(order, version=b"\0\1"):
    return b"MATLAB 5.0 MAT-file".ljust(124) + version + order


@pytest.mark.parametrize(("endian", "order", "version"), [("<", b"IM", b"\0\1"), (">", b"MI", b"\1\0")])
def test_both_byte_orders_are_read(write, endian, order, version):
    path = write(header(order, version) + matrix(endian, b"abcdefgh", shape=(2, 4)))
    assert read_matlab(path, everything)["x"].tolist() == [[97, 99, 101, 103], [98, 100, 102, 104]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 2**32 - 8}, "4294967288 bytes of values for dimensions"),
        ({"shape": (2**31 - 1, 2**31 - 1)}, "8 bytes of values for dimensions"),
        ({"shape": (-1, 8)}, "dimensions"),
        ({"shape": (1, 16), "size": 16}, "ends too early"),
    ],
)
def test_absurd_sizes_take_no_memory(write, packed, changes, message):
    element = matrix("<", b"abcdefgh", **changes)
    if packed:
        body = zlib.compress(element)
        element = struct.pack("<2I", 15, len(body)) + body
    path = write(header(b"IM") + element)
    tracemalloc.start()
    with pytest.raises(InputError, match=message):
        read_matlab(path, everything)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_bomb_in_the_stream_is_not_unpacked(write):
    body = zlib.compress(matrix("<", b"abcdefgh") + bytes(100 << 20))
    path = write(header(b"IM") + struct.pack("<2I", 15, len(body)) + body)
    tracemalloc.start()
    with pytest.raises(InputError, match="for dimensions"):
        read_matlab(path, everything)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a MATLAB file"),
        (b"x" * 200, "not a MATLAB file"),
        (header(b"IM", b"\0\2") + bytes(512), "save it with -v7"),
        (header(b"IM") + b"abc", "ends too early"),
        (header(b"IM") + struct.pack("<2I", 15, 4) + b"junk", "incorrect header check"),
    ],
)
def test_other_files_are_one_line(write, data, message):
    with pytest.raises(InputError, match=message):
        read_matlab(write(data, "test_32x32.mat"), everything)
