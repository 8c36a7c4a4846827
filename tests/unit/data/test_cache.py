"""The cache: whole entries or none, built once, rebuilt when stale or damaged. With real processes and a kill."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from asrnorm.core.errors import InputError, StorageError
from asrnorm.data import cache
from asrnorm.data.cache import cache_folder, describe_files, open_entry

BUILDER = """
import sys, time
from pathlib import Path
import numpy as np
from asrnorm.data.cache import open_entry

folder, seconds = Path(sys.argv[1]), float(sys.argv[2])

def build(writer):
    with (folder / "built.log").open("a") as log:
        log.write("x")
    writer.add("labels", np.arange(5))
    time.sleep(seconds)
    writer.add("images", np.full((5, 2), 7, np.uint8))

print(int(open_entry("entry", fingerprint={"a": 1}, build=build, folder=folder / "cache")["images"].sum()))
"""


def start(folder, seconds):
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(folder), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def log_size(folder):
    path = folder / "built.log"
    return path.stat().st_size if path.exists() else 0


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def counted():
    """A builder that counts how often it is called."""

    def build(writer):
        build.calls += 1
        writer.add("x", np.arange(6, dtype=np.uint8).reshape(3, 2))

    build.calls = 0
    return build


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(cache, "_verified", set())


def test_the_second_opening_does_not_build(tmp_path, counted):
    for _ in range(2):
        entry = open_entry("e", fingerprint={"k": (1, 2)}, build=counted, folder=tmp_path)
    assert counted.calls == 1
    assert isinstance(entry["x"], np.memmap)
    assert entry["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert names(tmp_path) == ["e", "e.lock"]


def test_another_fingerprint_or_version_builds_again(tmp_path, counted, monkeypatch):
    open_entry("e", fingerprint={"k": 1}, build=counted, folder=tmp_path)
    open_entry("e", fingerprint={"k": 2}, build=counted, folder=tmp_path)
    assert counted.calls == 2
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    open_entry("e", fingerprint={"k": 2}, build=counted, folder=tmp_path)
    assert counted.calls == 3


def damage_bytes(path):
    data = bytearray((path / "x.npy").read_bytes())
    data[-1] ^= 1
    (path / "x.npy").write_bytes(data)


def damage_length(path):
    (path / "x.npy").write_bytes((path / "x.npy").read_bytes()[:-1])


def damage_absent(path):
    (path / "x.npy").unlink()


def damage_record(path):
    (path / "entry.json").write_text("{")


def damage_shape(path):
    record = json.loads((path / "entry.json").read_text())
    record["arrays"]["x"]["shape"] = [2, 3]
    (path / "entry.json").write_text(json.dumps(record))


def damage_names(path):
    record = json.loads((path / "entry.json").read_text())
    (path / "entry.json").write_text(json.dumps({**record, "arrays": {}}))


def damage_kind(path):
    (path / "entry.json").write_text("[]")


@pytest.mark.parametrize(
    "damage", [damage_bytes, damage_length, damage_absent, damage_record, damage_shape, damage_names, damage_kind]
)
def test_a_damaged_entry_is_built_again(tmp_path, counted, damage):
    open_entry("e", fingerprint={}, build=counted, folder=tmp_path)
    damage(tmp_path / "e")
    cache._verified.clear()
    entry = open_entry("e", fingerprint={}, build=counted, folder=tmp_path)
    assert counted.calls == 2
    assert entry["x"][2, 1] == 5


def test_a_map_that_is_open_survives_a_rebuild(tmp_path, counted):
    before = open_entry("e", fingerprint={"k": 1}, build=counted, folder=tmp_path)["x"]
    open_entry("e", fingerprint={"k": 2}, build=lambda w: w.add("x", np.zeros((3, 2), np.uint8)), folder=tmp_path)
    assert before.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_builder_that_fails_leaves_nothing(tmp_path):
    def build(writer):
        writer.add("x", np.zeros(3))
        raise InputError("photo.jpg: cannot be read")

    with pytest.raises(InputError, match=r"photo\.jpg"):
        open_entry("e", fingerprint={}, build=build, folder=tmp_path)
    assert names(tmp_path) == ["e.lock"]


def test_a_failed_rebuild_keeps_nothing_half_written(tmp_path, counted):
    open_entry("e", fingerprint={"k": 1}, build=counted, folder=tmp_path)

    def fail(writer):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_entry("e", fingerprint={"k": 2}, build=fail, folder=tmp_path)
    open_entry("e", fingerprint={"k": 1}, build=counted, folder=tmp_path)
    assert counted.calls == 1


@pytest.mark.parametrize(
    "blocks", [[np.zeros((2, 2), np.uint8)], [np.zeros((3, 2))], [np.zeros((3, 3), np.uint8)]], ids=str
)
def test_blocks_that_do_not_make_the_array_are_refused(tmp_path, blocks):
    with pytest.raises(ValueError, match="array 'x'"):
        open_entry("e", fingerprint={}, build=lambda w: w.stream("x", (3, 2), np.uint8, blocks), folder=tmp_path)


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, counted, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache.os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        open_entry("e", fingerprint={}, build=counted, folder=tmp_path)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["e.lock"]


def test_a_write_that_the_kernel_refuses_leaves_nothing(tmp_path):
    """A real failing write: the process may not make files above 64 KiB."""
    program = f"""
import resource, signal
from pathlib import Path
import numpy as np
from asrnorm.data.cache import open_entry
from asrnorm.core.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    open_entry("e", fingerprint={{}}, build=lambda w: w.add("x", np.zeros(10**6)), folder=Path({str(tmp_path)!r}))
except StorageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "the disk is full" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert names(tmp_path) == ["e.lock"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, counted):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="ASRNORM_CACHE"):
        open_entry("e", fingerprint={}, build=counted, folder=tmp_path / "file" / "cache")


def test_two_processes_build_an_entry_once(tmp_path):
    processes = [start(tmp_path, 0.5) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [out for out, _ in outputs] == [b"70\n", b"70\n"], outputs
    assert log_size(tmp_path) == 1


def test_a_waiting_process_takes_over_from_one_that_is_killed(tmp_path):
    first = start(tmp_path, 300)
    wait_for(lambda: log_size(tmp_path) == 1)
    second = start(tmp_path, 0)
    wait_for(lambda: second.poll() is not None or _is_waiting(second.pid))
    assert second.poll() is None, "it must wait while the first one builds"
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=20)
    out, err = second.communicate(timeout=60)
    assert out == b"70\n", err
    assert log_size(tmp_path) == 2
    assert names(tmp_path / "cache") == ["entry", "entry.lock"], "what the killed one left is removed"


def test_without_locks_two_build_the_same_and_neither_removes_the_other_s(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)

    def build(writer):
        writer.add("x", np.arange(3))

    def build_around_another(writer):
        open_entry("e", fingerprint={"a": 1}, build=build, folder=tmp_path)
        build(writer)

    found = open_entry("e", fingerprint={"a": 1}, build=build_around_another, folder=tmp_path)
    assert found["x"].tolist() == [0, 1, 2]
    assert names(tmp_path) == ["e", "e.lock"]


def test_without_locks_four_processes_all_get_the_entry(tmp_path):
    refuse = "import errno, fcntl\ndef refuse(*_): raise OSError(errno.ENOLCK, 'no locks')\nfcntl.flock = refuse\n"
    command = [sys.executable, "-c", refuse + BUILDER, str(tmp_path), "0.05"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [out for out, _ in outputs] == 4 * [b"70\n"], outputs
    assert names(tmp_path / "cache") == ["entry", "entry.lock"]


def test_without_locks_an_entry_that_another_is_exchanging_is_awaited(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
    opened, answers = cache._open, iter([None, None, None, None])  # absent, absent, absent, just removed
    monkeypatch.setattr(cache, "_open", lambda *arguments: next(answers, opened(*arguments)))
    entry = open_entry("e", fingerprint={}, build=lambda w: w.add("x", np.ones(2)), folder=tmp_path)
    assert entry["x"].tolist() == [1, 1]


def _is_waiting(pid):
    """Whether the process sits in flock, where Linux tells; elsewhere a second has to do."""
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        where = "0"
    if where == "0":
        time.sleep(1)
        return True
    return "lock" in where


def test_without_locks_what_another_process_was_first_with_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "no locks")))
    remove = cache.shutil.rmtree

    def let_another_be_first(path, **options):
        remove(path, **options)
        if Path(path) == tmp_path / "ones":
            monkeypatch.setattr(cache.shutil, "rmtree", remove)
            open_entry("ones", fingerprint={}, build=lambda w: w.add("x", np.ones(2)), folder=tmp_path)

    monkeypatch.setattr(cache.shutil, "rmtree", let_another_be_first)
    entry = open_entry("ones", fingerprint={}, build=lambda w: w.add("x", np.ones(2)), folder=tmp_path)
    assert entry["x"].tolist() == [1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ones", "ones.lock"]


def test_a_stale_entry_that_cannot_be_removed_is_told_with_the_way_out(tmp_path, monkeypatch):
    open_entry("ones", fingerprint={"of": 1}, build=lambda w: w.add("x", np.ones(2)), folder=tmp_path)
    monkeypatch.setattr(cache.shutil, "rmtree", lambda *_, **__: None)  # as of a colleague's, with ignore_errors
    with pytest.raises(StorageError, match="ASRNORM_CACHE"):
        open_entry("ones", fingerprint={"of": 2}, build=lambda w: w.add("x", np.ones(2)), folder=tmp_path)


def test_the_cache_lies_in_the_data_folder_where_that_can_be_written(tmp_path, monkeypatch):
    monkeypatch.delenv("ASRNORM_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder(tmp_path) == tmp_path / ".cache" / "asrnorm"
    assert cache_folder(tmp_path / "absent") == tmp_path / "home" / ".cache" / "asrnorm"
    monkeypatch.setattr(cache.os, "access", lambda *_: False)
    assert cache_folder(tmp_path) == tmp_path / "home" / ".cache" / "asrnorm"
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path / "own"))
    assert cache_folder(tmp_path) == tmp_path / "own" / "asrnorm"


def test_an_entry_that_cannot_be_opened_just_now_is_not_made_again(tmp_path, monkeypatch):
    def build(writer):
        writer.add("x", np.ones(3))

    open_entry("one", fingerprint={}, build=build, folder=tmp_path)
    before = (tmp_path / "one" / "x.npy").stat().st_ino

    def refuse(path):
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(cache, "open_npy", refuse)
        with pytest.raises(StorageError, match=r"one: Too many open files$"):
            open_entry("one", fingerprint={}, build=build, folder=tmp_path)
    assert (tmp_path / "one" / "x.npy").stat().st_ino == before
    assert open_entry("one", fingerprint={}, build=build, folder=tmp_path)["x"].tolist() == [1, 1, 1]


def test_an_array_that_changed_since_it_was_checked_is_checked_again(tmp_path):
    def build(writer):
        writer.add("x", np.arange(6, dtype=np.uint8))

    open_entry("e", fingerprint={}, build=build, folder=tmp_path)
    path = tmp_path / "e" / "x.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)  # the same file, at another time
    os.utime(path, ns=(1, 1))
    assert open_entry("e", fingerprint={}, build=build, folder=tmp_path)["x"].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_changed_file_changes_the_description(tmp_path):
    path = tmp_path / "x"
    path.write_text("a")
    before = describe_files([path])
    assert describe_files([path]) == before
    path.write_text("ab")
    assert describe_files([path]) != before
    with pytest.raises(InputError):
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
