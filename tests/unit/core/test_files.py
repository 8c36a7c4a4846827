import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from asrnorm.core import files as storage
from asrnorm.core.errors import StorageError
from asrnorm.core.files import (
    hold_lock,
    open_to_append,
    replacing,
    sync_folder,
    take_lock,
    write_whole,
)


@pytest.fixture
def old(tmp_path):
    """A file in a folder of its own."""
    path = tmp_path / "place" / "page.html"
    write_whole(path, "old")
    return path


def refuse(code):
    def fail(*arguments, **named):
        raise OSError(code, os.strerror(code))

    return fail


def assert_untouched(path):
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_replaced_whole_and_nothing_else_is_left(old):
    write_whole(old, b"new")
    assert old.read_bytes() == b"new"
    assert list(old.parent.iterdir()) == [old]


def test_text_is_written_as_utf_8_with_its_line_ends_as_they_are(tmp_path):
    write_whole(tmp_path / "a", "µ\n\r\n")
    assert (tmp_path / "a").read_bytes() == b"\xc2\xb5\n\r\n"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "page.html"
    with pytest.raises(StorageError) as caught:
        write_whole(path, "x")
    assert str(caught.value) in {f"{path}: {os.strerror(code)}" for code in (errno.ENOTDIR, errno.EEXIST)}


@pytest.mark.parametrize(
    ("place", "call"),
    [(Path, "write_bytes"), (storage.os, "fsync"), (Path, "replace")],
    ids=["write", "sync", "rename"],
)
def test_a_full_disk_says_so_and_leaves_the_old_content_and_nothing_else(old, monkeypatch, place, call):
    monkeypatch.setattr(place, call, refuse(errno.ENOSPC))
    with pytest.raises(StorageError) as caught:
        write_whole(old, "new")
    assert str(caught.value) == f"{old}: No space left on device"
    assert_untouched(old)


def test_an_error_without_a_number_is_told_all_the_same(old, monkeypatch):
    def fail(handle):
        raise OSError("the cable")

    monkeypatch.setattr(storage.os, "fsync", fail)
    with pytest.raises(StorageError, match=r"page\.html: the cable$"):
        write_whole(old, "new")
    assert_untouched(old)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), RuntimeError("x"), KeyboardInterrupt()])
def test_a_body_that_fails_half_way_leaves_the_old_content_and_its_own_error(old, error):
    def stop_half_way():
        with replacing(old) as temporary:
            temporary.write_bytes(b"ha")
            raise error

    with pytest.raises(type(error)) as caught:
        stop_half_way()
    assert caught.value is error
    assert_untouched(old)


def test_a_killed_process_leaves_the_old_content_and_a_hidden_name_that_sweeps_find(old):
    code = (
        "import os, signal, sys; from pathlib import Path; from asrnorm.core import files as storage\n"
        "storage.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
        "storage.write_whole(Path(sys.argv[1]), 'new')"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(old)]) as process:
        assert process.wait() == -signal.SIGKILL
    assert old.read_bytes() == b"old"
    (left,) = set(old.parent.iterdir()) - {old}
    assert left.name == f".page.html.{process.pid}.tmp.html"
    assert left.read_bytes() == b"new"


def test_leftovers_of_killed_processes_go_and_those_of_running_ones_stay(tmp_path):
    path = tmp_path / "model[1].onnx"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = [tmp_path / f".model[1].onnx.{number}.tmp.onnx" for number in (ended.pid, 10**30)]
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    kept = [tmp_path / f".model[1].onnx.{running.pid}.tmp.onnx", tmp_path / f".other.{ended.pid}.tmp", path]
    for one in (*dead, *kept):
        one.touch()
    write_whole(path, "new")
    running.communicate(b"\n")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_the_temporary_name_lies_beside_and_ends_as_the_file_does(old):
    with replacing(old) as temporary:
        assert (temporary.parent, temporary.suffix, temporary.name[0]) == (old.parent, ".html", ".")
        temporary.write_bytes(b"new")
        assert old.read_bytes() == b"old"
    assert old.read_bytes() == b"new"


def test_the_content_is_on_the_disk_before_its_name_and_the_name_at_the_end(old, monkeypatch):
    done, fsync, rename = [], os.fsync, Path.replace

    def watch_sync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def watch_rename(path, target):
        done.append("name")
        return rename(path, target)

    monkeypatch.setattr(storage.os, "fsync", watch_sync)
    monkeypatch.setattr(Path, "replace", watch_rename)
    write_whole(old, "new")
    assert done == ["file", "name", "folder"]


def test_a_folder_that_cannot_be_brought_to_the_disk_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        sync_folder(tmp_path)


@pytest.mark.parametrize(("call", "code"), [("fsync", errno.EINVAL), ("open", errno.EACCES)])
def test_systems_that_sync_no_folders_are_written_to_all_the_same(tmp_path, monkeypatch, call, code):
    monkeypatch.setattr(storage.os, call, refuse(code))
    sync_folder(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_without_a_name_is_given_that_of_the_file(old, monkeypatch, code):
    monkeypatch.setattr(storage.os, "fsync", refuse(code))
    with pytest.raises(OSError, match="page") as caught, replacing(old) as temporary:
        temporary.write_bytes(b"new")
    assert str(caught.value) == f"[Errno {code}] {os.strerror(code)}: {str(old)!r}"


def test_an_error_of_the_temporary_file_is_given_the_name_of_the_file(tmp_path):
    with pytest.raises(IsADirectoryError) as caught, replacing(tmp_path) as temporary:
        temporary.write_bytes(b"new")
    assert str(caught.value) == f"[Errno {errno.EISDIR}] {os.strerror(errno.EISDIR)}: {str(tmp_path)!r}"


def test_an_error_of_another_file_keeps_its_name(old):
    with pytest.raises(FileNotFoundError, match="nothing-here"), replacing(old):
        Path("nothing-here").read_bytes()


def test_behind_a_link_the_file_is_replaced(old, tmp_path):
    link = tmp_path / "link.html"
    link.symlink_to(old)
    write_whole(link, "new")
    assert link.is_symlink()
    assert old.read_text() == "new"
    assert list(old.parent.iterdir()) == [old]


def test_a_link_that_is_not_followed_is_replaced_itself(old, tmp_path):
    link = tmp_path / "link.html"
    link.symlink_to(old)
    (tmp_path / f".link.html.{os.getpid()}.tmp.html").symlink_to(old)
    write_whole(link, "new", follow_links=False)
    assert not link.is_symlink()
    assert link.read_text() == "new"
    assert_untouched(old)


def test_no_line_is_appended_behind_a_link(old, tmp_path):
    link, dangling, plain = tmp_path / "log.jsonl", tmp_path / "lock", tmp_path / "plain"
    link.symlink_to(old)
    dangling.symlink_to(tmp_path / "absent")
    for path in (link, dangling):
        with pytest.raises(OSError, match="symbolic link"):
            open_to_append(path)
    assert_untouched(old)
    assert not (tmp_path / "absent").exists()
    for _ in range(2):
        with open_to_append(plain) as file:
            file.write(b"x")
    assert plain.read_bytes() == b"xx"


def test_a_pipe_gets_the_content_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_whole(pipe, "content")
        assert reader.communicate()[0] == b"content"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_names_of_devices_are_told_from_those_of_files(old, tmp_path):
    # Only asked: a file that took the place of /dev/null would break the machine.
    devices = [path for path in map(Path, ("/dev/null", "/dev/stdout", "/dev/fd/1")) if path.exists()]
    assert [path for path in devices if not storage._is_special(path)] == []
    assert not any(storage._is_special(path) for path in (old, tmp_path, tmp_path / "new.json"))


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no disk in memory")
def test_a_file_on_a_disk_in_memory_is_a_file():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        assert not storage._is_special(Path(file.name))


def test_a_name_that_is_no_utf8_is_written_so_that_it_can_be_read(old):
    write_whole(old, os.fsdecode(b"caf\xe9"))
    assert old.read_text() == "caf\\udce9"


def test_only_one_is_inside(tmp_path):
    path = tmp_path / "x.lock"
    entered = threading.Event()

    def second():
        with hold_lock(path):
            entered.set()

    thread = threading.Thread(target=second)
    with hold_lock(path):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


def test_a_process_that_dies_inside_drops_it(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from asrnorm.core.files import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])): os._exit(9)"
    )
    path = tmp_path / "x.lock"
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode == 9
    with hold_lock(path):
        pass


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold_lock(tmp_path / "x.lock") as held:
        assert not held


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_that_another_holds_is_busy_by_either_name(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, "held")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "x.lock").open("ab") as file, pytest.raises(BlockingIOError, match="held"):
        take_lock(file)


def test_two_may_share_a_lock_and_a_third_may_not_have_it_alone(tmp_path):
    files = [(tmp_path / "x.lock").open("ab") for _ in range(3)]
    assert take_lock(files[0], shared=True)
    assert take_lock(files[1], shared=True)
    with pytest.raises(BlockingIOError):
        take_lock(files[2])
    for file in files:
        file.close()


def test_other_failures_are_passed_on(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="broken disk"), hold_lock(tmp_path / "x.lock"):
        pass
