"""When the files behind an entry of the cache count as others."""

import os

import pytest

from asrnorm.core.errors import InputError
from asrnorm.data.cache import describe_files


def test_a_changed_file_changes_the_description(tmp_path):
    path = tmp_path / "x"
    path.write_text("a")
    before = describe_files([path])
    assert describe_files([path]) == before
    path.write_text("ab")
    assert describe_files([path]) != before
    with pytest.raises(InputError, match="No such file"):
        describe_files([tmp_path / "absent"])


def test_files_are_described_by_path_size_and_time(tmp_path):
    path, other = tmp_path / "a" / "x.png", tmp_path / "b" / "x.png"
    for one in (path, other):
        one.parent.mkdir()
        one.write_bytes(b"12345")
        os.utime(one, ns=(1, 1))
    seen = {describe_files([path]), describe_files([other])}
    path.write_bytes(b"54321")  # of the same size
    os.utime(path, ns=(2, 2))
    seen.add(describe_files([path]))
    path.write_bytes(b"1234")
    os.utime(path, ns=(1, 1))
    seen.add(describe_files([path]))
    assert len(seen) == 4


def test_other_content_of_the_same_size_and_time_is_noticed(tmp_path):
    path = tmp_path / "x.bmp"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1, 1))
    before = describe_files([path])
    path.write_bytes(b"54321")
    os.utime(path, ns=(1, 1))  # as a copy with its times kept, or out of an archive
    assert path.stat().st_mtime_ns == 1
    assert describe_files([path]) != before
