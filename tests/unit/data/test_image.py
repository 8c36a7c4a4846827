"""Decoding: by content, upright, opaque, eight bits; and one line for what cannot be decoded."""

import errno
import struct
import threading
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.image import read_image, read_images, resize_images
from helpers.published import noise


@pytest.fixture
def save(tmp_path):
    def save(image, name="x.png", **options):
        path = tmp_path / name
        image.save(path, **options)
        return path

    return save


def test_the_content_decides_and_not_the_ending(tmp_path):
    pixels = noise(9, 7, 3)
    path = tmp_path / "pic.jpg"
    Image.fromarray(pixels).save(path, "WEBP", lossless=True)
    np.testing.assert_array_equal(read_image(path), pixels)


def test_alpha_is_laid_on_white(save):
    image = Image.new("RGBA", (3, 1), (200, 0, 0, 255))
    image.putpixel((1, 0), (0, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    pixels = read_image(save(image))
    assert pixels[0, 0].tolist() == [200, 0, 0]
    assert pixels[0, 1].tolist() == [255, 255, 255]
    assert pixels[0, 2].tolist() == [127, 127, 127]


@pytest.mark.parametrize("mode", ["LA", "PA", "P", "L", "1"])
def test_every_kind_of_transparency_is_laid_on_white(save, mode):
    if mode in ("LA", "PA"):  # value 0, opacity 0
        path = save(Image.new(mode, (2, 2), (0, 0)), "x.tif")
    else:
        path = save(Image.new(mode, (2, 2), 0), transparency=0)
    assert (read_image(path) == 255).all()


def test_a_palette_gives_its_colors(save):
    image = Image.new("P", (2, 1), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    assert read_image(save(image)).tolist() == [[[10, 20, 30]] * 2]


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_keep_their_high_byte(save, ending):
    values = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
    pixels = read_image(save(Image.fromarray(values), f"x.{ending}"))
    assert pixels[..., 0].tolist() == [[0, 0, 1], [128, 255, 255]]
    assert (pixels[..., 0] == pixels[..., 2]).all()


def test_floats_from_zero_to_one_are_scaled_and_others_refused(save):
    unit = save(Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)), "unit.tif")
    assert read_image(unit)[0, :, 0].tolist() == [0, 128, 255]
    wild = save(Image.fromarray(np.array([[-3.0, 700.0]], np.float32)), "wild.tif")
    with pytest.raises(InputError, match=r"wild\.tif: .* -3 to 700"):
        read_image(wild)


def test_cmyk_becomes_rgb(save):
    pixels = read_image(save(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "x.jpg", quality=100))
    assert pixels.shape == (8, 8, 3)
    assert abs(pixels.astype(int) - [255, 0, 0]).max() <= 3


def test_exif_rotation_is_applied(tmp_path):
    pixels = np.zeros((4, 8, 3), np.uint8)
    pixels[:, :4] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: rotate by 90 degrees clockwise to view
    Image.fromarray(pixels).save(tmp_path / "x.png", exif=exif)
    upright = read_image(tmp_path / "x.png")
    assert upright.shape == (8, 4, 3)
    assert (upright[:4] == 255).all()
    assert (upright[4:] == 0).all()


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK", "I;16"])
def test_a_tiff_comes_upright_however_it_is_stored(save, mode, orientation, compression):
    exif = Image.Exif()
    exif[0x0112] = orientation
    values = noise(12, 20) if mode != "I;16" else noise(12, 20).astype(np.uint16) * 256
    stored = Image.fromarray(values) if mode == "I;16" else Image.fromarray(values).convert(mode)
    path = save(stored, "x.tif", exif=exif, **({"compression": compression} if compression else {}))
    quarter = {5: 1, 6: 3, 7: 3, 8: 1}.get(orientation, 2 * (orientation in (3, 4)))
    upright = np.rot90(noise(12, 20), quarter)
    if orientation in (2, 4, 5, 7):
        upright = upright[:, ::-1] if orientation in (2, 4) else upright[::-1]
    np.testing.assert_array_equal(read_image(path)[..., 1], upright)


def test_a_broken_exif_block_is_no_reason_to_refuse(save):
    path = save(Image.new("RGB", (4, 4), "red"), "x.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert read_image(path).shape == (4, 4, 3)


def test_resizing_equals_pillow(save):
    pixels = noise(40, 30, 3)
    expected = np.asarray(Image.fromarray(pixels).resize((16, 12), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(read_image(save(Image.fromarray(pixels)), size=(12, 16)), expected)


def test_an_image_of_the_wanted_size_is_left_alone(save):
    pixels = noise(5, 6, 3)
    np.testing.assert_array_equal(read_image(save(Image.fromarray(pixels)), size=(5, 6)), pixels)


def png_of_size(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 30_000])
def test_a_decompression_bomb_is_refused_unopened(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_size(side, side))
    with pytest.raises(InputError, match=r"bomb\.png.*pixels"):
        read_image(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_a_truncated_file_is_one_line(tmp_path, kind):
    path = tmp_path / "photo"
    Image.fromarray(noise(64, 64, 3)).save(path, kind)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"{path}: cannot be read as an image: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"])
def test_other_files_are_one_line(tmp_path, data):
    path = tmp_path / "note.jpg"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_image(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_folder_and_a_file_that_may_not_be_read_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(InputError) as caught:
        read_image(tmp_path)
    assert str(caught.value) == f"{tmp_path}: a folder, not an image file"

    def refuse(path, mode):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("asrnorm.data.image.Path.open", refuse)
    with pytest.raises(InputError) as caught:
        read_image(tmp_path / "a.png")
    assert str(caught.value) == f"{tmp_path / 'a.png'}: cannot be read as an image: Permission denied"


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"absent\.png"):
        read_image(tmp_path / "absent.png")


def test_many_files_come_in_order_whatever_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.data.image._BLOCK", 4)
    images = noise(10, 6, 6, 3)
    paths = [tmp_path / f"{row}.png" for row in range(10)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    blocks = list(read_images(paths, size=(6, 6)))
    assert [len(block) for block in blocks] == [4, 4, 2]
    np.testing.assert_array_equal(np.concatenate(blocks), images)


def test_the_first_bad_file_of_many_is_named_and_warnings_are_as_before(tmp_path):
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    Image.new("RGB", (6, 6)).save(good)
    bad.write_bytes(b"no")
    before, threads = list(warnings.filters), threading.active_count()
    with pytest.raises(InputError, match=r"bad\.png"):
        list(read_images([good, bad, good], size=(6, 6)))
    assert warnings.filters == before
    assert threading.active_count() == threads


def test_lanczos_on_bytes_equals_pillow_and_grey_is_replicated():
    grey = noise(3, 28, 28)
    resized = resize_images(grey, (32, 32))
    for image, out in zip(grey, resized, strict=True):
        expected = np.asarray(Image.fromarray(image).resize((32, 32), Image.Resampling.LANCZOS))
        for channel in range(3):
            np.testing.assert_array_equal(out[..., channel], expected)


def test_integers_of_32_bits_are_refused_and_of_16_are_not(tmp_path):
    gray = np.arange(256, dtype=np.int32).reshape(16, 16)
    Image.fromarray(gray).save(tmp_path / "wide.tif")
    with pytest.raises(InputError, match=r"wide\.tif: .* 0 to 255"):
        read_image(tmp_path / "wide.tif")
    for name in ("short.tif", "short.png"):
        Image.fromarray((gray << 8).astype(np.uint16)).save(tmp_path / name)
        np.testing.assert_array_equal(read_image(tmp_path / name)[..., 0], gray)


def test_the_gray_that_stands_for_none_is_white_at_16_bits_too(tmp_path):
    for name, gray, clear in (
        ("8.png", np.array([[64, 128]], np.uint8), 64),
        ("16.png", np.array([[16384, 32768]], np.uint16), 16384),
    ):
        Image.fromarray(gray).save(tmp_path / name, transparency=clear)
        assert read_image(tmp_path / name)[0, :, 0].tolist() == [255, 128]
