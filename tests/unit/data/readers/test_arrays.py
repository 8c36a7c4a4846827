"""The idx and .npy readers return the published values, or one line that names the file."""

import gzip
import struct

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.readers import arrays, open_npy, read_idx
from helpers.published import idx_bytes, noise


def test_idx_values_come_back(write):
    images = noise(3, 28, 28)
    np.testing.assert_array_equal(read_idx(write(idx_bytes(images)), ndim=3), images)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG",
        idx_bytes(noise(3, 2, 2))[:-1],
        idx_bytes(noise(3, 2, 2)) + b"x",
        b"\0\0\x0d\x03" + bytes(12),
        idx_bytes(noise(3)),
        b"\0\0\x08\x03\0\0",
        idx_bytes(noise(0, 28, 28)),
        bytes([0, 0, 8, 3]) + b"\xff\xff\xff\xff" * 3 + b"abc",
        bytes([0, 0, 8, 3]) + b"\x7f\xff\xff\xff" * 3 + b"abc",
    ],
    ids=["empty", "png", "short", "long", "dtype", "axes", "header", "no values", "huge", "huge signed"],
)
def test_another_file_than_idx_is_one_line_that_names_it(write, data):
    path = write(data, "train-images-idx3-ubyte")
    with pytest.raises(InputError) as caught:
        read_idx(path, ndim=3)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(InputError):
        read_idx(tmp_path / "absent", ndim=1)


def test_a_truncated_gzip_is_one_line(write):
    with pytest.raises(InputError, match="fetch the file again"):
        read_idx(write(gzip.compress(idx_bytes(noise(500)))[:-20]), ndim=1)


def test_a_gzip_bomb_is_not_decompressed_beyond_the_limit(write, monkeypatch):
    monkeypatch.setattr(arrays, "MAX_IDX_BYTES", 1 << 20)
    with pytest.raises(InputError, match="1,048,576"):
        read_idx(write(gzip.compress(bytes(8 << 20))), ndim=1)


def test_npy_is_mapped_and_read_only(tmp_path):
    values = noise(4, 3)
    np.save(tmp_path / "x.npy", values)
    array = open_npy(tmp_path / "x.npy")
    np.testing.assert_array_equal(array, values)
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable


def test_an_empty_npy_has_its_shape(tmp_path):
    np.save(tmp_path / "x.npy", noise(0, 3))
    assert open_npy(tmp_path / "x.npy").shape == (0, 3)


@pytest.mark.parametrize(
    "values", [np.array([None]), np.zeros(2, [("a", "u1")]), np.asfortranarray(noise(3, 4))], ids=str
)
def test_npy_with_objects_records_or_fortran_order_is_refused(tmp_path, values):
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(InputError, match=r"x\.npy"):
        open_npy(tmp_path / "x.npy")


def test_a_truncated_npy_says_how_much_is_missing(tmp_path):
    path = tmp_path / "fog.npy"
    np.save(path, noise(100))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"fog\.npy: .*\b100\b.*\b99\b"):
        open_npy(path)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{"]
)
def test_another_file_than_npy_is_one_line_also_with_a_huge_header(write, data):
    with pytest.raises(InputError, match=r"x\.bin"):
        open_npy(write(data, "x.bin"))
