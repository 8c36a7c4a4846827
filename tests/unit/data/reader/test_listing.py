"""Lists of names and labels: every bad line by its number, no path outside the data set."""

import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.reader.listing import read_listing


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("photo/dog/1.jpg 8", "line 2: expected a name and a label 1 to 7"),
        ("photo/dog/1.jpg", "line 2"),
        ("photo/dog/1.jpg x", "line 2"),
        ("../../etc/passwd 1", "not a path inside"),
        ("/etc/passwd 1", "not a path inside"),
        ("photo\\..\\..\\x 1", "not a path inside"),
        ("1", "not a path inside"),
    ],
)
def test_a_bad_line_is_named(write, line, message):
    with pytest.raises(InputError, match=message):
        read_listing(write(f"photo/a.jpg 1\n{line}\n".encode()), labels=range(1, 8))


def test_names_may_hold_spaces_and_windows_line_ends(write):
    path = write(b"\xef\xbb\xbfmy photo/a b.jpg 1\r\n\r\n")
    assert read_listing(path, labels=range(1, 8)) == [("my photo/a b.jpg", 1)]


@pytest.mark.parametrize(("data", "message"), [(b"", "no lines"), (b"\xff\xfe", "UTF-8")])
def test_empty_and_binary_files_are_refused(write, data, message):
    with pytest.raises(InputError, match=message):
        read_listing(write(data), labels=range(1, 8))
