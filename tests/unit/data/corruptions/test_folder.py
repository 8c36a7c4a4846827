import os

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.corruptions import corrupt, corrupt_folder
from asrnorm.data.image import EXTENSIONS, read_image

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    (folder / "cat" / "old").mkdir(parents=True)
    Image.fromarray(PIXELS).save(folder / "cat" / "a.png")
    Image.fromarray(PIXELS[:20]).save(folder / "cat" / "old" / "b.bmp")
    Image.fromarray(PIXELS[:, :10]).save(folder / "c.JPG")
    (folder / "notes.txt").write_text("no image")
    return folder


def names(folder):
    """What lies in a folder, but for the file that says what call it is of."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name != ".corrupt.json")


def test_the_tree_is_kept_and_the_files_are_png(photos, tmp_path):
    written = corrupt_folder(photos, tmp_path / "out", "brightness", 2, progress=False)
    assert names(tmp_path / "out") == ["c.png", "cat/a.png", "cat/old/b.png"]
    assert len(written) == 3
    np.testing.assert_array_equal(
        np.asarray(Image.open(tmp_path / "out" / "cat" / "a.png")), corrupt(PIXELS[None], "brightness", severity=2)[0]
    )


def test_without_a_terminal_long_work_is_told_in_lines(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("asrnorm.core.progress._SECONDS", 0.0)
    corrupt_folder(photos, tmp_path / "out", "fog")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines[:3]] == [f"fog: {share} % done" for share in (33, 67, 100)]
    assert lines[3:] == [f"fog: 3 images in {tmp_path / 'out'}"]


def test_hidden_files_are_passed_over_and_linked_folders_entered_once(photos, tmp_path):
    (photos / "cat" / "._a.png").write_bytes(b"what a Mac leaves beside a file")
    (tmp_path / "elsewhere").mkdir()
    Image.fromarray(PIXELS).save(tmp_path / "elsewhere" / "d.png")
    (photos / "link").symlink_to(tmp_path / "elsewhere")
    (photos / "cat" / "up").symlink_to(photos)
    corrupt_folder(photos, tmp_path / "out", "contrast", 1)
    assert names(tmp_path / "out") == ["c.png", "cat/a.png", "cat/old/b.png", "link/d.png"]


def test_other_images_change_nothing(photos, tmp_path):
    corrupt_folder(photos, tmp_path / "first", "gaussian_noise", progress=False)
    Image.fromarray(PIXELS).save(photos / "aa.png")
    corrupt_folder(photos, tmp_path / "second", "gaussian_noise", progress=False)
    for name in names(tmp_path / "first"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    same_pixels = [read_image(tmp_path / "second" / name) for name in ("aa.png", "cat/a.png")]
    assert (same_pixels[0] != same_pixels[1]).mean() > 0.8  # but noise of their own


def test_seed_and_severity_count(photos, tmp_path):
    results = []
    for number, (severity, seed) in enumerate([(3, 0), (3, 1), (5, 0)]):
        corrupt_folder(photos, tmp_path / str(number), "fog", severity, seed, progress=False)
        results.append((tmp_path / str(number) / "c.png").read_bytes())
    assert len(set(results)) == 3


def test_a_file_that_is_there_stays(photos, tmp_path):
    mine = tmp_path / "out" / "cat" / "a.png"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own")
    with pytest.raises(InputError, match="choose another folder"):
        corrupt_folder(photos, tmp_path / "out", "brightness", progress=False)
    assert mine.read_text() == "my own"
    assert names(tmp_path / "out") == ["cat/a.png"]


def test_names_that_are_no_utf8_are_names(photos, tmp_path):
    strange = os.fsdecode(b"caf\xe9.png")
    (photos / "c.JPG").rename(photos / strange)
    assert tmp_path / "out" / strange in corrupt_folder(photos, tmp_path / "out", "gaussian_noise", progress=False)


def test_wrong_calls_write_nothing(photos, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(UnknownNameError):
        corrupt_folder(photos, out, "fogg")
    with pytest.raises(InputError):
        corrupt_folder(tmp_path / "nowhere", out, "fog")
    with pytest.raises(UnknownNameError):
        corrupt_folder(photos, out, "gaussian_noise", sdd=1)
    assert not out.exists()


@pytest.mark.parametrize("inside", [".", "out", "cat/deeper"])
def test_writing_into_the_source_is_refused(photos, inside):
    with pytest.raises(InputError):
        corrupt_folder(photos, photos / inside, "fog")


def test_an_empty_folder_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError):
        corrupt_folder(tmp_path / "empty", tmp_path / "out", "fog")


def test_two_images_for_one_file_are_refused_before_any_work(photos, tmp_path):
    Image.fromarray(PIXELS).save(photos / "cat" / "a.webp")
    with pytest.raises(InputError, match="rename"):
        corrupt_folder(photos, tmp_path / "out", "fog")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"plain text"])
def test_a_damaged_image_is_named_and_leaves_nothing_half_written(photos, tmp_path, content):
    (photos / "cat" / "a.png").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.png") as caught:
        corrupt_folder(photos, tmp_path / "out", "fog", progress=False)
    assert "\n" not in str(caught.value)
    assert [name for name in names(tmp_path / "out") if not name.startswith(".")] == ["c.png"]


def test_stopped_by_a_damaged_image_the_same_call_goes_on_and_another_is_refused(photos, tmp_path):
    damaged, out = photos / "cat" / "b.png", tmp_path / "out"
    whole = {path.name: path.read_bytes() for path in corrupt_folder(photos, tmp_path / "whole", "fog", progress=False)}
    damaged.write_bytes(b"plain text")
    with pytest.raises(InputError):
        corrupt_folder(photos, out, "fog", progress=False)
    first = out / "c.png"
    before = first.stat()
    with pytest.raises(InputError, match="choose another folder"):
        corrupt_folder(photos, out, "fog", severity=4, progress=False)
    damaged.unlink()
    written = corrupt_folder(photos, out, "fog", progress=False)
    assert names(out) == sorted(path.relative_to(out).as_posix() for path in written)
    assert all(path.read_bytes() == whole[path.name] for path in written)
    assert first.stat().st_mtime_ns == before.st_mtime_ns, "it was made once"
    assert corrupt_folder(photos, out, "fog", progress=False) == written, "all is there"
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(InputError, match="choose another folder"):
        corrupt_folder(photos, out, "fog", severity=4, progress=False)


def test_an_image_that_was_changed_since_is_made_again(photos, tmp_path):
    written = corrupt_folder(photos, tmp_path / "out", "contrast", progress=False)
    before = {path: path.read_bytes() for path in written}
    Image.fromarray(255 - PIXELS).save(photos / "cat" / "a.png")
    later = written[0].stat().st_mtime_ns + 10**9
    os.utime(photos / "cat" / "a.png", ns=(later, later))
    assert corrupt_folder(photos, tmp_path / "out", "contrast", progress=False) == written
    changed = [path.name for path in written if path.read_bytes() != before[path]]
    assert changed == ["a.png"]


def test_a_file_in_place_of_the_folder_is_named(photos, tmp_path):
    (tmp_path / "out").write_text("my own")
    with pytest.raises(InputError):
        corrupt_folder(photos, tmp_path / "out", "fog", progress=False)


@pytest.mark.parametrize("ending", sorted(EXTENSIONS - {".avif"}))  # which not every Pillow writes
def test_every_kind_of_image_that_is_read_elsewhere_is_corrupted(tmp_path, ending):
    (tmp_path / "photos").mkdir()
    Image.fromarray(PIXELS).convert("L" if ending == ".pgm" else "RGB").save(tmp_path / "photos" / f"x{ending}")
    corrupt_folder(tmp_path / "photos", tmp_path / "out", "fog", progress=False)
    assert names(tmp_path / "out") == ["x.png"]


def test_transparent_parts_are_white_as_in_training(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGBA", (40, 40), (0, 0, 0, 0)).save(tmp_path / "photos" / "x.png")
    corrupt_folder(tmp_path / "photos", tmp_path / "out", "jpeg_compression", 1, progress=False)
    assert read_image(tmp_path / "out" / "x.png").min() > 250


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"preset": "imagenet"}, {"sd": 0.5}], ids=lambda change: next(iter(change))
)
def test_what_was_begun_with_other_numbers_is_not_gone_on_with(tmp_path, change):
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.full((32, 32, 3), 100, np.uint8)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "photos" / "b.png").write_bytes(b"plain text")
    call = tmp_path / "photos", tmp_path / "out", "gaussian_noise"
    with pytest.raises(InputError):
        corrupt_folder(*call, progress=False)
    (tmp_path / "photos" / "b.png").unlink()
    with pytest.raises(InputError, match="choose another folder"):
        corrupt_folder(*call, progress=False, **change)
