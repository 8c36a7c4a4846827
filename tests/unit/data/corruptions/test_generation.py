import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from asrnorm.core.errors import InputError, StorageError, UnknownNameError
from asrnorm.data.corruptions import corrupt, generate_cifar10c, generate_corrupted, generation
from asrnorm.data.corruptions.generation import _Record, read_cifar10_test, write_array

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(12, dtype=np.uint8) % 10
FEW = ["fog", "gaussian_noise", "pixelate"]


def generate(out, **options):
    return generate_corrupted(IMAGES, LABELS, out, **{"corruptions": FEW, "workers": 1, "progress": False} | options)


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".generated.json.lock")


def test_the_layout_is_the_published_one(tmp_path):
    files = generate(tmp_path / "new" / "folder")
    assert names(tmp_path / "new" / "folder") == [
        "fog.npy", "gaussian_noise.npy", "generated.json", "labels.npy", "pixelate.npy",
    ]  # fmt: skip
    assert [file.name for file in files] == ["labels", *FEW]
    fog = np.load(files[1].path)
    assert fog.shape == (60, 32, 32, 3)
    assert fog.dtype == np.uint8
    for severity in (1, 2, 3, 4, 5):
        rows = fog[(severity - 1) * 12 : severity * 12]
        np.testing.assert_array_equal(rows, corrupt(IMAGES, "fog", severity=severity))
    np.testing.assert_array_equal(np.load(files[0].path), np.tile(LABELS, 5))


def test_the_number_of_workers_changes_nothing(tmp_path):
    many = np.tile(IMAGES, (60, 1, 1, 1))  # more than one piece
    alone = generate_corrupted(many, np.zeros(720), tmp_path / "b", corruptions=["fog"], workers=1, progress=False)
    shared = generate_corrupted(many, np.zeros(720), tmp_path / "c", corruptions=["fog"], workers=2, progress=False)
    assert alone[1].md5 == shared[1].md5
    fog = np.load(shared[1].path)[:720]
    np.testing.assert_array_equal(fog, corrupt(many, "fog", severity=1))
    assert len({image.tobytes() for image in fog}) == 720  # the same picture twice gets other fog


@pytest.mark.parametrize(
    "labels", [LABELS[:5], LABELS + 0.5, LABELS.astype(int) + 250, LABELS.astype(int) - 1], ids=str
)
def test_labels_that_are_not_those_of_the_images_are_refused(tmp_path, labels):
    with pytest.raises(InputError):
        generate_corrupted(IMAGES, labels, tmp_path / "out", corruptions=["fog"], workers=1, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "other", [{"images_nhwc": 255 - IMAGES}, {"labels_n": (LABELS + 1) % 10}, {"preset": "imagenet"}], ids=str
)
def test_another_set_is_not_mixed_into_a_folder(tmp_path, other):
    given = {"images_nhwc": IMAGES, "labels_n": LABELS, "out": tmp_path, "workers": 1, "progress": False}
    generate_corrupted(**given, corruptions=["contrast"])
    before = names(tmp_path)
    with pytest.raises(InputError, match="use another folder"):
        generate_corrupted(**{**given, **other}, corruptions=["contrast", "saturate"])
    assert names(tmp_path) == before


def test_the_preset_that_the_size_gives_may_be_named(tmp_path):
    generate(tmp_path, corruptions=["contrast"])
    assert all(file.skipped for file in generate(tmp_path, corruptions=["contrast"], preset="cifar"))


def test_finished_files_are_skipped_and_missing_ones_made(tmp_path):
    first = generate(tmp_path, corruptions=["fog"])
    written = first[1].path.stat().st_mtime_ns
    again = generate(tmp_path)
    assert [file.skipped for file in again] == [True, True, False, False]
    assert first[1].path.stat().st_mtime_ns == written
    assert set(json.loads((tmp_path / "generated.json").read_text())["files"]) == {"labels", *FEW}


def test_files_of_another_seed_are_not_mixed_in(tmp_path):
    generate(tmp_path, seed=1)
    with pytest.raises(InputError, match="seed 1, not 2"):
        generate(tmp_path, seed=2)
    assert generate(tmp_path, seed=2, corruptions=["pixelate"])[1].skipped  # not random


def test_a_file_that_changed_after_it_was_made_is_found(tmp_path):
    path = generate(tmp_path)[1].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"fog\.npy"):
        generate(tmp_path)


def test_two_processes_keep_each_other_s_entries(tmp_path):
    record, other = (_Record(tmp_path / "generated.json", 0, "") for _ in range(2))
    for name, mine in (("snow", record), ("fog", other)):
        (tmp_path / f"{name}.npy").write_bytes(b"x")
        mine.enter(name, 0.0, skipped=False)
    assert sorted(_Record(tmp_path / "generated.json", 0, "").files) == ["fog", "snow"]


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "generated.json").write_text("{")
    with pytest.raises(InputError, match=r"generated\.json"):
        generate(tmp_path)


def test_a_wrong_name_fails_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError):
        generate(tmp_path / "out", corruptions=["brightness", "fogg"])
    assert not (tmp_path / "out").exists()


def test_no_workers_are_refused(tmp_path):
    with pytest.raises(InputError):
        generate(tmp_path, workers=0)


def test_missing_frost_pictures_fail_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="asrnorm data fetch frost"):
        generate(tmp_path / "out", corruptions=["brightness", "frost"], frost=tmp_path)
    assert not (tmp_path / "out").exists()


def test_lines_tell_the_progress_where_there_is_no_terminal(tmp_path, capfd):
    generate(tmp_path, progress=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == FEW


SCRIPT = """
import sys
import numpy as np
from asrnorm.data.corruptions import generate_corrupted
if __name__ == "__main__":
    images = np.random.default_rng(0).integers(0, 256, (1500, 32, 32, 3), dtype=np.uint8)
    generate_corrupted(images, np.zeros(1500), sys.argv[1], corruptions=["pixelate", "snow"], workers=2)
"""


def start(script, out):
    return subprocess.Popen([sys.executable, str(script), str(out)], stderr=subprocess.PIPE, text=True)


def test_a_killed_run_leaves_no_damaged_file_and_no_process_and_is_finished_by_the_next(tmp_path):
    script, out = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT)
    process = start(script, out)
    deadline = time.monotonic() + 60
    while not (out / ".snow.npy.partial").exists():  # the first file is done, the second begun
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.communicate(timeout=60)  # ends when the workers, which share its standard error, have ended too
    assert process.returncode == -signal.SIGKILL
    assert "snow.npy" not in names(out)
    assert np.load(out / "pixelate.npy").shape == (7500, 32, 32, 3)
    again = start(script, out)
    assert "already there" in again.communicate()[1]
    assert again.returncode == 0
    assert not [name for name in names(out) if name.startswith(".")]
    assert np.load(out / "snow.npy")[-1].any()


def test_cifar10_is_read_from_the_binary_version(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    with pytest.raises(InputError, match="asrnorm data fetch cifar10"):
        read_cifar10_test(tmp_path)
    folder.mkdir()
    records = np.random.default_rng(0).integers(0, 256, (10_000, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    (folder / "test_batch.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(InputError, match="fetch"):
        generate_cifar10c(tmp_path, tmp_path / "out")
    (folder / "test_batch.bin").write_bytes(records[1:].tobytes())
    with pytest.raises(InputError, match="9,999"):
        generate_cifar10c(tmp_path, tmp_path / "out")
    (folder / "test_batch.bin").write_bytes(records.tobytes())
    images, labels = read_cifar10_test(tmp_path)
    assert images.shape == (10_000, 32, 32, 3)
    assert images[7, 2, 3].tolist() == [records[7, 1 + c * 1024 + 2 * 32 + 3] for c in range(3)]
    np.testing.assert_array_equal(labels, records[:, 0])


def test_a_folder_that_cannot_be_written_is_an_os_error_with_its_name(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(OSError, match="file"):
        generate(blocker / "out")


ROWS = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


def refuse(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


def test_an_array_appears_when_it_is_complete_and_equals_np_save(tmp_path):
    path = tmp_path / "a.npy"
    with write_array(path, ROWS.shape) as write:
        write(ROWS[:2])
        assert not path.exists()
        write(ROWS[2:])
    np.save(tmp_path / "b.npy", ROWS)
    assert path.read_bytes() == (tmp_path / "b.npy").read_bytes()
    assert names(tmp_path) == ["a.npy", "b.npy"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_nothing(tmp_path, error):
    def stop_halfway():
        with write_array(tmp_path / "a.npy", ROWS.shape) as write:
            write(ROWS[:1])
            raise error

    with pytest.raises(error):
        stop_halfway()
    assert names(tmp_path) == []


@pytest.mark.parametrize("call", ["posix_fallocate", "write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, call, code):
    with monkeypatch.context() as patch:
        patch.setattr(generation.os, call, refuse(code), raising=False)
        with pytest.raises(StorageError, match="--out") as caught, write_array(tmp_path / "a.npy", ROWS.shape) as write:
            write(ROWS)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_other_errors_are_not_called_a_full_disk(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(generation.os, "write", refuse(errno.EIO))
        with pytest.raises(OSError) as caught, write_array(tmp_path / "a.npy", ROWS.shape) as write:  # noqa: PT011
            write(ROWS)
    assert caught.value.errno == errno.EIO
    assert names(tmp_path) == []


def test_a_file_system_that_cannot_reserve_or_lock_is_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(generation.os, "posix_fallocate", refuse(errno.EOPNOTSUPP), raising=False)
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOLCK))
    with write_array(tmp_path / "a.npy", ROWS.shape) as write:
        write(ROWS)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ROWS)


def test_what_a_killed_process_left_is_overwritten(tmp_path):
    (tmp_path / ".a.npy.partial").write_bytes(b"x" * 1000)
    with write_array(tmp_path / "a.npy", ROWS.shape) as write:
        write(ROWS)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ROWS)
    assert names(tmp_path) == ["a.npy"]


def test_two_writers_of_one_file_are_refused(tmp_path):
    with write_array(tmp_path / "a.npy", ROWS.shape) as write:
        with pytest.raises(InputError), write_array(tmp_path / "a.npy", ROWS.shape):
            pass
        write(ROWS)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ROWS)


def test_a_file_that_was_finished_while_waiting_for_its_lock_is_not_overwritten(tmp_path, monkeypatch):
    """The first lock is gained on a file that another process has given its final name."""
    hidden = tmp_path / ".a.npy.partial"
    lock, calls = fcntl.flock, []

    def lock_late(descriptor, how):
        if not calls:
            hidden.write_bytes(b"finished by the other")
            hidden.rename(tmp_path / "other.npy")
        calls.append(how)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with write_array(tmp_path / "a.npy", ROWS.shape) as write:
        write(ROWS)
    assert (tmp_path / "other.npy").read_bytes() == b"finished by the other"
    assert len(calls) == 2


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"x" * 5000, b"half"])
def test_something_else_under_the_name_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / "fog.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"fog\.npy"):
        generate(tmp_path)
    assert names(tmp_path) == ["fog.npy"]
