import numpy as np
import pytest
from PIL import Image

from asrnorm.data.corruption import corrupt, corrupt_folder
from asrnorm.data.corruption.folder import read_rgb
from asrnorm.errors import InputError, UnknownNameError

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
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_tree_is_kept_and_the_files_are_png(photos, tmp_path):
    written = corrupt_folder(photos, tmp_path / "out", "brightness", 2, progress=False)
    assert names(tmp_path / "out") == ["c.png", "cat/a.png", "cat/old/b.png"]
    assert len(written) == 3
    np.testing.assert_array_equal(
        np.asarray(Image.open(tmp_path / "out" / "cat" / "a.png")), corrupt(PIXELS[None], "brightness", severity=2)[0]
    )


def test_other_images_change_nothing(photos, tmp_path):
    corrupt_folder(photos, tmp_path / "first", "gaussian_noise", progress=False)
    Image.fromarray(PIXELS).save(photos / "aa.png")
    corrupt_folder(photos, tmp_path / "second", "gaussian_noise", progress=False)
    for name in names(tmp_path / "first"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    same_pixels = [read_rgb(tmp_path / "second" / name) for name in ("aa.png", "cat/a.png")]
    assert (same_pixels[0] != same_pixels[1]).mean() > 0.8  # but noise of their own


def test_seed_and_severity_count(photos, tmp_path):
    results = []
    for number, (severity, seed) in enumerate([(3, 0), (3, 1), (5, 0)]):
        corrupt_folder(photos, tmp_path / str(number), "fog", severity, seed, progress=False)
        results.append((tmp_path / str(number) / "c.png").read_bytes())
    assert len(set(results)) == 3


def test_wrong_calls_write_nothing(photos, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(UnknownNameError, match="did you mean 'fog'"):
        corrupt_folder(photos, out, "fogg")
    with pytest.raises(InputError, match="is no folder"):
        corrupt_folder(tmp_path / "nowhere", out, "fog")
    with pytest.raises(UnknownNameError, match="did you mean 'sd'"):
        corrupt_folder(photos, out, "gaussian_noise", sdd=1)
    assert not out.exists()


@pytest.mark.parametrize("inside", [".", "out", "cat/deeper"])
def test_writing_into_the_source_is_refused(photos, inside):
    with pytest.raises(InputError, match="choose a folder outside it"):
        corrupt_folder(photos, photos / inside, "fog")


def test_an_empty_folder_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty has no images"):
        corrupt_folder(tmp_path / "empty", tmp_path / "out", "fog")


def test_two_images_for_one_file_are_refused_before_any_work(photos, tmp_path):
    Image.fromarray(PIXELS).save(photos / "cat" / "a.webp")
    with pytest.raises(InputError, match=r"a\.png and cat/a\.webp would both become a\.png"):
        corrupt_folder(photos, tmp_path / "out", "fog")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"plain text"])
def test_a_damaged_image_is_named_and_leaves_nothing_half_written(photos, tmp_path, content):
    (photos / "cat" / "a.png").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.png cannot be read as an image") as caught:
        corrupt_folder(photos, tmp_path / "out", "fog", progress=False)
    assert "\n" not in str(caught.value)
    assert names(tmp_path / "out") == ["c.png"]


def test_a_truncated_image_is_named(photos):
    path = photos / "cat" / "a.png"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(InputError, match=r"a\.png cannot be read"):
        read_rgb(path)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "CMYK", "1", "I;16"])
def test_other_modes_become_rgb(tmp_path, mode):
    if mode == "I;16":
        image = Image.fromarray(np.full((6, 4), 200 * 257, np.uint16))
    else:
        image = Image.new("RGB", (4, 6), (200, 200, 200)).convert(mode)
    path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    image.save(path)
    pixels = read_rgb(path)
    assert pixels.shape == (6, 4, 3)
    assert abs(int(pixels.mean()) - (255 if mode == "1" else 200)) <= 60  # dithering, for one bit


def test_transparent_parts_are_black(tmp_path):
    Image.new("RGBA", (4, 4), (255, 255, 255, 0)).save(tmp_path / "x.png")
    assert not read_rgb(tmp_path / "x.png").any()


def test_a_rotation_in_exif_is_carried_out(tmp_path):
    image = Image.fromarray(PIXELS)
    exif = image.getexif()
    exif[0x0112] = 6  # a quarter turn
    image.save(tmp_path / "x.png", exif=exif)
    assert read_rgb(tmp_path / "x.png").shape == (50, 40, 3)


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    Image.fromarray(PIXELS).save(tmp_path / "x.png")
    for limit in (500, 1500):  # far above the limit, and just above it
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(InputError, match="too many pixels"):
            read_rgb(tmp_path / "x.png")
