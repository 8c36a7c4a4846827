import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.corruptions import corrupt, generate_cifar10c, generate_corrupted
from asrnorm.data.corruptions.generation import _Record, read_cifar10_test

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
    ("labels", "line"),
    [
        (LABELS[:5], "12 images need as many whole numbers for labels"),
        (LABELS + 0.5, "12 images need as many whole numbers for labels"),
        (LABELS.astype(int) + 250, "labels must be from 0 to 255, not 250 to 259"),
        (LABELS.astype(int) - 1, "labels must be from 0 to 255, not -1 to 8"),
    ],
)
def test_labels_that_are_not_those_of_the_images_are_refused(tmp_path, labels, line):
    with pytest.raises(InputError, match=line):
        generate_corrupted(IMAGES, labels, tmp_path / "out", corruptions=["fog"], workers=1, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "other", [{"images_nhwc": 255 - IMAGES}, {"labels_n": (LABELS + 1) % 10}, {"preset": "imagenet"}], ids=str
)
def test_another_set_is_not_mixed_into_a_folder(tmp_path, other):
    given = {"images_nhwc": IMAGES, "labels_n": LABELS, "out": tmp_path, "workers": 1, "progress": False}
    generate_corrupted(**given, corruptions=["contrast"])
    before = names(tmp_path)
    with pytest.raises(InputError, match="was made of other images, labels or severities: use another folder"):
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
    with pytest.raises(InputError, match=r"fog\.npy has changed"):
        generate(tmp_path)


def test_a_damaged_file_is_named_and_left_alone(tmp_path):
    (tmp_path / "fog.npy").write_bytes(b"half")
    with pytest.raises(InputError, match=r"fog\.npy is no uint8 array"):
        generate(tmp_path)
    assert names(tmp_path) == ["fog.npy"]


def test_two_processes_keep_each_other_s_entries(tmp_path):
    record, other = (_Record(tmp_path / "generated.json", 0) for _ in range(2))
    for name, mine in (("snow", record), ("fog", other)):
        (tmp_path / f"{name}.npy").write_bytes(b"x")
        mine.enter(name, tmp_path / f"{name}.npy", 0.0, skipped=False)
    assert sorted(_Record(tmp_path / "generated.json", 0).files) == ["fog", "snow"]


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "generated.json").write_text("{")
    with pytest.raises(InputError, match=r"generated\.json cannot be read"):
        generate(tmp_path)


def test_a_wrong_name_fails_before_anything_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'fog'"):
        generate(tmp_path / "out", corruptions=["brightness", "fogg"])
    assert not (tmp_path / "out").exists()


def test_no_workers_are_refused(tmp_path):
    with pytest.raises(InputError, match="0 workers"):
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
    assert "there already" in again.communicate()[1]
    assert again.returncode == 0
    assert not [name for name in names(out) if name.startswith(".")]
    assert np.load(out / "snow.npy")[-1].any()


def test_cifar10_is_read_from_the_binary_version(tmp_path):
    folder = tmp_path / "cifar-10-batches-bin"
    with pytest.raises(InputError, match=r"test_batch\.bin is missing"):
        read_cifar10_test(tmp_path)
    folder.mkdir()
    records = np.random.default_rng(0).integers(0, 256, (10_000, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    (folder / "test_batch.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(InputError, match="30729999 bytes"):
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
