"""The .npy reader: mapped, without objects, without trust in headers."""

import struct

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.reader.array import open_npy
from helpers.published import noise


def test_npy_is_mapped_and_read_only(tmp_path):
    values = noise(4, 3)
    np.save(tmp_path / "x.npy", values)
    array = open_npy(tmp_path / "x.npy")
    np.testing.assert_array_equal(array, values)
    assert isinstance(array, np.memmap)
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([None]), "not a plain number"),
        (np.zeros(2, [("a", "u1")]), "not a plain number"),
        (np.asfortranarray(noise(3, 4)), "Fortran order"),
    ],
)
def test_other_contents_are_refused(tmp_path, values, message):
    np.save(tmp_path / "x.npy", values, allow_pickle=True)
    with pytest.raises(InputError, match=message):
        open_npy(tmp_path / "x.npy")


def test_truncated_npy_says_how_much_is_missing(tmp_path):
    path = tmp_path / "fog.npy"
    np.save(path, noise(100))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"fog.npy: the header promises 100 bytes .* the file holds 99"):
        open_npy(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY\x09\x00"])
def test_other_files_are_one_line(write, data):
    with pytest.raises(InputError, match=r"x\.bin: not a readable \.npy file"):
        open_npy(write(data, "x.bin"))


def test_a_header_longer_than_the_file_takes_no_memory(write):
    with pytest.raises(InputError, match="not a readable"):
        open_npy(write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{"))


def test_an_empty_array_has_its_shape(tmp_path):
    np.save(tmp_path / "x.npy", noise(0, 3))
    assert open_npy(tmp_path / "x.npy").shape == (0, 3)
