"""The .npy and .npz readers: mapped, without objects, without trust in headers."""

import io
import struct

import numpy as np
import pytest

from asrnorm.data.reader.array import open_npy, read_npz
from asrnorm.errors import InputError
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
    np.savez(tmp_path / "x.npz", images=values)
    with pytest.raises(InputError, match=message):
        open_npy(tmp_path / "x.npy")
    with pytest.raises(InputError, match=message):
        read_npz(tmp_path / "x.npz", names=("images",))


def test_truncated_npy_says_how_much_is_missing(tmp_path):
    path = tmp_path / "fog.npy"
    np.save(path, noise(100))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"fog.npy: the header promises 100 bytes .* the file holds 99"):
        open_npy(path)


def test_npz_needs_the_named_array(tmp_path):
    np.savez(tmp_path / "x.npz", pictures=noise(2))
    with pytest.raises(InputError, match="expected an array 'images', found pictures"):
        read_npz(tmp_path / "x.npz", names=("images",))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY\x09\x00"])
def test_other_files_are_one_line(write, data):
    with pytest.raises(InputError, match=r"x\.bin: not a readable \.npy file"):
        open_npy(write(data, "x.bin"))
    with pytest.raises(InputError, match=r"x\.bin: not a \.npz file"):
        read_npz(write(data, "x.bin"), names=("images",))


def test_a_header_longer_than_the_file_takes_no_memory(write):
    with pytest.raises(InputError, match="not a readable"):
        open_npy(write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{"))


def test_npz_of_an_empty_array(tmp_path):
    stream = io.BytesIO()
    np.savez(stream, images=noise(0, 3))
    (tmp_path / "x.npz").write_bytes(stream.getvalue())
    assert read_npz(tmp_path / "x.npz", names=("images",))["images"].shape == (0, 3)
