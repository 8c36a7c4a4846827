"""The MATLAB reader agrees with SciPy's writer, and a wrong or hostile file is one line that costs little memory."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from scipy.io import savemat

from asrnorm.core.errors import InputError
from asrnorm.data.readers import read_digit_mat
from helpers.published import noise, write_digit_mat

DTYPES = ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 300])
def test_images_come_first_and_ten_is_zero(tmp_path, compress, dtype, count):
    path = tmp_path / "test_32x32.mat"
    for pixels in (noise(32, 32, 3, count), np.zeros((32, 32, 3, count), np.uint8)):
        labels = (np.arange(count) % 10 + 1).astype(dtype)
        savemat(path, {"X": pixels, "y": labels[:, None]}, do_compression=compress)
        images, found = read_digit_mat(path)
        np.testing.assert_array_equal(images, pixels.transpose(3, 0, 1, 2))
        np.testing.assert_array_equal(found, labels.astype(np.int64) % 10)
        assert found.dtype == np.int64


def test_other_variables_are_skipped(tmp_path):
    path = tmp_path / "x.mat"
    other = {"text": "hello", "cell": np.array([1, "a"], object), "z": np.array([1j]), "s": {"a": 1}, "X1": noise(2, 3)}
    savemat(path, {**other, "X": noise(32, 32, 3, 1), "a_long_name_for_an_array": np.arange(7.0), "y": [[5]]})
    assert read_digit_mat(path)[1].tolist() == [5]


@pytest.mark.parametrize(
    "values",
    [
        {"X": noise(32, 32, 3, 2)},
        {"y": np.ones((2, 1))},
        {"X": noise(28, 28, 3, 2), "y": np.ones((2, 1))},
        {"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))},
        {"X": noise(32, 32, 3, 2), "y": np.ones((3, 1))},
        {"X": noise(32, 32, 3, 2), "y": np.full((2, 1), 11)},
        {"X": noise(32, 32, 3, 2), "y": np.full((2, 1), np.nan)},
        {"X": noise(32, 32, 3, 2), "y": np.ones((2, 1), complex)},
        {"X": noise(32, 32, 3, 2), "y": np.array([["a"], ["b"]])},
        {"X": noise(32, 32, 3, 0), "y": np.ones((0, 1))},
    ],
    ids=["no y", "no X", "size", "dtype", "count", "label", "nan", "complex", "text", "empty"],
)
@pytest.mark.parametrize("compress", [False, True])
def test_wrong_content_is_one_line_that_names_the_file(tmp_path, values, compress):
    path = tmp_path / "test_32x32.mat"
    savemat(path, values, do_compression=compress)
    with pytest.raises(InputError) as caught:
        read_digit_mat(path)
    assert str(caught.value).startswith(f"{path}: ")


def tag(endian, kind, data, size=None):
    """An element, built by hand from the description of the format."""
    return struct.pack(f"{endian}2I", kind, len(data) if size is None else size) + data + bytes(-len(data) % 8)


def variable(endian, name, shape, data, size=None):
    """A uint8 variable."""
    flags = tag(endian, 6, struct.pack(f"{endian}2I", 9, 0))
    dimensions = tag(endian, 5, struct.pack(f"{endian}{len(shape)}i", *shape))
    body = flags + dimensions + struct.pack(f"{endian}I", 1 << 16 | 1) + name + bytes(3) + tag(endian, 2, data, size)
    return tag(endian, 14, body)


def header(order=b"IM", version=b"\0\1"):
    return b"MATLAB 5.0 MAT-file".ljust(124) + version + order


def packed(element):
    body = zlib.compress(element)
    return struct.pack("<2I", 15, len(body)) + body


@pytest.mark.parametrize(("endian", "order", "version"), [("<", b"IM", b"\0\1"), (">", b"MI", b"\1\0")])
def test_both_byte_orders_are_read(write, endian, order, version):
    pixels = noise(2, 3, 32, 32)
    images = variable(endian, b"X", (32, 32, 3, 2), pixels.tobytes())
    path = write(header(order, version) + images + variable(endian, b"y", (2, 1), b"\x0a\x07"))
    found, labels = read_digit_mat(path)
    np.testing.assert_array_equal(found, pixels.transpose(0, 3, 2, 1))
    assert labels.tolist() == [0, 7]


@pytest.mark.parametrize("pack", [bytes, packed], ids=["plain", "compressed"])
@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        (b"y", (8, 1), 2**32 - 8),
        (b"y", (2**31 - 1, 1), None),
        (b"y", (2**31 - 1, 2**31 - 1), None),
        (b"y", (-1, 1), None),
        (b"y", (16, 1), 16),
        (b"X", (32, 32, 3, 2**31 - 1), None),
        (b"X", (32, 32, 3, 500_000), 32 * 32 * 3 * 500_000),
    ],
)
def test_absurd_sizes_take_no_memory(write, pack, name, shape, size):
    path = write(header() + pack(variable("<", name, shape, b"abcdefgh", size)))
    assert memory_of_failure(path) < 4 << 20


def test_a_bomb_in_the_stream_is_not_decompressed(write):
    for shape in ((8, 1), (4, 1)):
        path = write(header() + packed(variable("<", b"y", shape, b"abcdefgh") + bytes(100 << 20)))
        assert memory_of_failure(path) < 4 << 20


def memory_of_failure(path):
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=str(path)):
            read_digit_mat(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0, 50, 128, 200, -100])
def test_a_truncated_file_is_one_line(tmp_path, length):
    path = tmp_path / "test_32x32.mat"
    write_digit_mat(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match=r"test_32x32\.mat"):
        read_digit_mat(path)


def test_a_value_type_that_crashes_scipy_is_one_line(write, tmp_path):
    path = tmp_path / "b.mat"
    savemat(path, {"X": noise(32, 32, 3, 4), "y": np.array([[10], [3], [1], [2]], np.uint8)})
    data = bytearray(path.read_bytes())
    assert data[184] == 2  # the type of the values of X, with which loadmat indexes a table unchecked
    data[184] = 154
    with pytest.raises(InputError):
        read_digit_mat(write(bytes(data)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 200,
        header() + b"abc",
        header() + struct.pack("<2I", 15, 4) + b"junk",
        header() + packed(b""),
        header() + packed(b"\x0e"),
        header() + tag("<", 14, b""),
    ],
)
def test_other_files_are_one_line(write, data):
    with pytest.raises(InputError, match=r"test_32x32\.mat"):
        read_digit_mat(write(data, "test_32x32.mat"))


def test_an_hdf5_file_says_how_to_save_it(write):
    with pytest.raises(InputError, match="save it with -v7"):
        read_digit_mat(write(header(version=b"\0\2") + bytes(512)))
