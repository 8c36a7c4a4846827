"""The text readers: USPS as the public loaders have it, lists of names; a bad line is named by its number."""

import bz2

import numpy as np
import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.readers import read_listing, read_usps
from helpers.published import usps_text

ROW = "1 " + " ".join(f"{index}:-1" for index in range(1, 257))


def test_usps_is_truncated_float32_as_public_loaders_do(write):
    text, values = usps_text(10)
    expected = ((values.astype(np.float32) + 1) / 2 * 255).astype(np.uint8).reshape(-1, 16, 16)
    for data in (text, bz2.compress(text), text.replace(b"\n", b"\r\n\n")):
        images, labels = read_usps(write(data))
        np.testing.assert_array_equal(images, expected)
        assert labels.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("1 1:", "x 1:"),
        ("1 1:", "1.5 1:"),
        ("1 1:", "nan 1:"),
        ("1 1:", "0 1:"),
        ("1 1:", "11 1:"),
        (" 2:-1", " 2:2"),
        (" 2:-1", " 2:nan"),
        (" 2:-1", " 2:"),
        (" 2:-1", " 2"),
        (" 2:-1", " -2:-1"),
        (" 2:-1", " 0:-1"),
        (" 2:-1", " 1:-1"),
        (" 2:-1", " 99999999999999999999:1"),
        (" 2:-1", ""),
        (" 256:-1", " 256:-1 257:-1"),
    ],
)
def test_a_bad_usps_line_is_named_with_its_number(write, old, new):
    assert ROW.replace(old, new, 1) != ROW
    with pytest.raises(InputError, match="line 2: "):
        read_usps(write(f"{ROW}\n{ROW.replace(old, new, 1)}\n".encode()))


def test_a_digit_that_is_cut_short_is_fetched_again(write):
    with pytest.raises(InputError, match="line 2: 200 of 256"):
        read_usps(write(f"{ROW}\n{' '.join(ROW.split()[:201])}".encode()))


@pytest.mark.parametrize(
    "line",
    [
        "photo/dog/1.jpg 8",
        "photo/dog/1.jpg",
        "photo/dog/1.jpg x",
        "../../etc/passwd 1",
        "/etc/passwd 1",
        "photo\\..\\..\\x 1",
        "1",
    ],
)
def test_a_bad_line_of_a_list_is_named_with_its_number(write, line):
    with pytest.raises(InputError, match="line 2: "):
        read_listing(write(f"photo/a.jpg 1\n{line}\n".encode()), labels=range(1, 8))


def test_names_may_hold_spaces_and_windows_line_ends(write):
    path = write(b"\xef\xbb\xbfmy photo/a b.jpg 1\r\n\r\n")
    assert read_listing(path, labels=range(1, 8)) == [("my photo/a b.jpg", 1)]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xff\xfe"])
def test_empty_and_binary_files_are_refused(write, data):
    path = write(data)
    for read in (read_usps, lambda path: read_listing(path, labels=range(1, 8))):
        with pytest.raises(InputError, match=str(path)):
            read(path)
