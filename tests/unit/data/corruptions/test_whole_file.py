import errno
import fcntl
import os

import numpy as np
import pytest

from asrnorm.core import files as storage
from asrnorm.core.errors import InputError
from asrnorm.data.corruptions.worker_pool import PartialArray, write_text

ROWS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def refuse(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


def test_the_file_appears_when_it_is_whole_and_equals_np_save(tmp_path):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    with target.filling():
        target.write_rows(2, ROWS[2:])
        assert not target.path.exists()
        assert not target.is_finished()
        target.write_rows(0, ROWS[:2])
    np.save(tmp_path / "b.npy", ROWS)
    assert target.path.read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert target.is_finished()
    assert names(tmp_path) == ["a.npy", "b.npy"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))

    def stop_halfway():
        with target.filling():
            target.write_rows(0, ROWS[:1])
            raise error

    with pytest.raises(error):
        stop_halfway()
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, call, code):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    monkeypatch.setattr(os, call, refuse(code), raising=False)
    with pytest.raises(InputError, match=r"no space left for .*a\.npy") as caught, target.filling():
        target.write_rows(0, ROWS)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_other_errors_are_not_called_a_full_disk(tmp_path, monkeypatch):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    monkeypatch.setattr(os, "pwrite", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), target.filling():
        target.write_rows(0, ROWS)
    assert names(tmp_path) == []


def test_a_file_system_that_cannot_reserve_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "posix_fallocate", refuse(errno.EOPNOTSUPP), raising=False)
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    with target.filling():
        target.write_rows(0, ROWS)
    np.testing.assert_array_equal(np.load(target.path), ROWS)


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    target.hidden.write_bytes(b"x" * 1000)
    with target.filling():
        target.write_rows(0, ROWS)
    np.testing.assert_array_equal(np.load(target.path), ROWS)
    assert names(tmp_path) == ["a.npy"]


def test_two_writers_of_one_file_are_refused(tmp_path):
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    with target.filling():
        with pytest.raises(InputError, match="another process"), PartialArray(target.path, (4, 2, 3)).filling():
            pass
        target.write_rows(0, ROWS)
    np.testing.assert_array_equal(np.load(target.path), ROWS)


def test_a_file_that_was_finished_while_waiting_for_its_lock_is_not_overwritten(tmp_path, monkeypatch):
    """The first lock is gained on a file that has got its final name meanwhile."""
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    lock, calls = fcntl.flock, []

    def lock_late(descriptor, how):
        if not calls:
            target.hidden.write_bytes(b"finished by the other")
            target.hidden.rename(tmp_path / "other.npy")
        calls.append(how)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with target.filling():
        target.write_rows(0, ROWS)
    assert (tmp_path / "other.npy").read_bytes() == b"finished by the other"
    assert len(calls) == 2


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOLCK))
    target = PartialArray(tmp_path / "a.npy", (4, 2, 3))
    with target.filling():
        target.write_rows(0, ROWS)
    np.testing.assert_array_equal(np.load(target.path), ROWS)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 5000])
def test_something_else_under_the_name_is_refused(tmp_path, content):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npy is no uint8 array of shape"):
        PartialArray(tmp_path / "a.npy", (4, 2, 3)).is_finished()


def test_text_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_text(tmp_path / "r.json", "old")
    monkeypatch.setattr(storage.os, "fsync", refuse(errno.ENOSPC))
    with pytest.raises(InputError, match="no space left"):
        write_text(tmp_path / "r.json", "new")
    assert (tmp_path / "r.json").read_text() == "old"
    assert names(tmp_path) == ["r.json"]
