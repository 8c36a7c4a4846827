import pytest

from asrnorm.errors import StorageError
from asrnorm.storage import write_whole


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "deep" / "page.html"
    write_whole(path, "old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        write_whole(tmp_path / "file" / "page.html", "x")
