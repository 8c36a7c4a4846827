"""The idx reader: the published values, or one line that names the file."""

import gzip

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.reader.idx import read_idx
from helpers.published import idx_bytes, noise


def test_values_come_back(write):
    images = noise(3, 28, 28)
    np.testing.assert_array_equal(read_idx(write(idx_bytes(images)), ndim=3), images)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an idx file"),
        (b"\x89PNG", "not an idx file"),
        (idx_bytes(noise(3, 2, 2))[:-1], "the file holds 11"),
        (idx_bytes(noise(3, 2, 2)) + b"x", "the file holds 13"),
        (b"\0\0\x0d\x03" + bytes(12), "unsigned bytes with 3 axes, found type 0x0d"),
        (idx_bytes(noise(3)), "with 3 axes, found type 0x08 with 1 axes"),
        (b"\0\0\x08\x03\0\0", "ends inside the header"),
        (idx_bytes(noise(0, 28, 28)), "no values"),
    ],
)
def test_what_is_wrong_is_said(write, data, message):
    path = write(data, "train-images-idx3-ubyte")
    with pytest.raises(InputError, match=message) as caught:
        read_idx(path, ndim=3)
    assert str(caught.value).startswith(str(path))


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        read_idx(tmp_path / "absent", ndim=1)


def test_a_truncated_gzip_is_one_line(write):
    with pytest.raises(InputError, match="damaged or end too early"):
        read_idx(write(gzip.compress(idx_bytes(noise(500)))[:-20]), ndim=1)
