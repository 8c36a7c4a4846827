"""The LIBSVM reader: USPS as the public loaders have it, and every bad line by its number."""

import bz2

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.reader.libsvm import read_libsvm, read_usps
from helpers.published import usps_text


def test_usps_is_truncated_float32_as_public_loaders_do(write):
    text, values = usps_text(10)
    expected = ((values.astype(np.float32) + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16)
    for data in (text, bz2.compress(text)):
        images, labels = read_usps(write(data))
        np.testing.assert_array_equal(images, expected)
        assert labels.tolist() == list(range(10))


def test_values_left_out_are_zero(write):
    values, labels = read_libsvm(write(b"7 2:0.5\r\n\n-1 1:1 3:2\n"), num_features=3)
    assert values.tolist() == [[0, 0.5, 0], [1, 0, 2]]
    assert labels.tolist() == [7, -1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x 1:1", "line 2: could not convert"),
        ("1.5 1:1", "not a whole number"),
        ("nan 1:1", "not a whole number"),
        ("1 4:1", "index '4' is not between 1 and 3"),
        ("1 0:1", "index '0' is not between 1 and 3"),
        ("1 2:1 2:1", "index '2' is not between 3 and 3"),
        ("1 -1:1", "'-1:1' is not index:value"),
        ("1 2", "'2' is not index:value"),
        ("1 1:nan", "not a usable number"),
        ("1 1:", "line 2"),
        ("1 99999999999999999999:1", "is not between"),
    ],
)
def test_a_bad_line_is_named_with_its_number(write, line, message):
    with pytest.raises(InputError, match=message):
        read_libsvm(write(f"1 1:1\n{line}\n".encode()), num_features=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 1:2", "USPS has -1 to 1"), ("11 1:0", "USPS has 1 to 10"), ("", "no lines")],
)
def test_values_out_of_range_are_refused(write, text, message):
    rest = " ".join(f"{index}:0" for index in range(2, 257))
    with pytest.raises(InputError, match=message):
        read_usps(write(f"{text} {rest}".encode() if text else b""))


def test_a_digit_that_is_cut_short_is_no_digit(write):
    row = "1 " + " ".join(f"{index}:-1" for index in range(1, 257))
    with pytest.raises(InputError, match=r"line 2: 200 of 256 values; fetch the file again"):
        read_usps(write(f"{row}\n{' '.join(row.split()[:201])}".encode()))


def test_empty_lines_of_many_values_take_no_memory(write):
    with pytest.raises(InputError, match="more than can be held"):
        read_libsvm(write(b"1\n" * 1000), num_features=10**6)
