"""The MATLAB reader: ten is zero, and a wrong or damaged file is one line."""

import numpy as np
import pytest
from scipy.io import savemat

from asrnorm.core.errors import InputError
from asrnorm.data.reader.mat import read_digit_mat
from helpers.published import noise, write_digit_mat


def test_ten_is_zero_and_images_come_first(tmp_path):
    path = tmp_path / "test_32x32.mat"
    pixels = noise(32, 32, 3, 3)
    savemat(path, {"X": pixels, "y": np.array([[10], [1], [9]], np.uint8)})
    images, labels = read_digit_mat(path)
    assert labels.tolist() == [0, 1, 9]
    np.testing.assert_array_equal(images[1], pixels[..., 1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"X": noise(32, 32, 3, 2)}, "expected the arrays X and y with a label an image, found X"),
        ({"X": noise(28, 28, 3, 2), "y": np.ones((2, 1))}, r"expected X to be uint8 \(32, 32, 3, n\)"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "found float64"),
        ({"X": noise(32, 32, 3, 2), "y": np.ones((3, 1))}, "X holds 2 images and y 3 labels"),
        ({"X": noise(32, 32, 3, 2), "y": np.full((2, 1), 11)}, "which is no digit"),
        ({"X": noise(32, 32, 3, 2), "y": np.array([["a"], ["b"]])}, "y"),
    ],
)
def test_wrong_content_is_said(tmp_path, values, message):
    path = tmp_path / "test_32x32.mat"
    savemat(path, values)
    with pytest.raises(InputError, match=message) as caught:
        read_digit_mat(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("length", [0, 50, 128, 200, -100])
def test_a_truncated_file_is_one_line(tmp_path, length):
    path = tmp_path / "test_32x32.mat"
    write_digit_mat(path)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match=r"test_32x32\.mat"):
        read_digit_mat(path)


def test_an_hdf5_file_is_named(write):
    header = b"MATLAB 7.3 MAT-file".ljust(124, b" ") + b"\x00\x02IM" + bytes(512)
    with pytest.raises(InputError, match="save it with -v7"):
        read_digit_mat(write(header))
