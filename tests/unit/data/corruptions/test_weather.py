import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from asrnorm.core.errors import InputError
from asrnorm.data.corruptions import corrupt, frost_pictures, weather
from asrnorm.data.corruptions.base import Streams
from asrnorm.data.corruptions.blur import smear
from asrnorm.data.corruptions.severity import severity_options
from asrnorm.data.corruptions.weather import plasma

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)


def plain_plasma(noise, side, decay):
    """Diamond-square point by point: centres of squares, then of diamonds, coarse to fine, wrapped at the borders."""
    height = {(0, 0): 0.0}
    noise = iter(noise)
    step, wibble = side, 100.0

    def put(row, column, neighbors):
        mean = sum(height[(row + dr) % side, (column + dc) % side] for dr, dc in neighbors) / 4
        height[row, column] = mean + wibble * wibble * next(noise)

    while step >= 2:
        half = step // 2
        square = [(-half, -half), (-half, half), (half, -half), (half, half)]
        diamond = [(-half, 0), (half, 0), (0, -half), (0, half)]
        for start_row, start_column, neighbors in ((half, half, square), (0, half, diamond), (half, 0, diamond)):
            for row in range(start_row, side, step):
                for column in range(start_column, side, step):
                    put(row, column, neighbors)
        step, wibble = half, wibble / decay
    values = np.array([[height[row, column] for column in range(side)] for row in range(side)])
    return (values - values.min()) / (values.max() - values.min())


@pytest.mark.parametrize(("side", "decay"), [(2, 3.0), (8, 2.0), (32, 1.75)])
def test_plasma_equals_filling_it_point_by_point(side, decay):
    maps = plasma(Streams(5, "fog", 1, range(3)), side, decay)
    noise = Streams(5, "fog", 1, range(3)).uniform(side * side, low=-1.0, high=1.0)
    for ours, drawn in zip(maps, noise, strict=True):
        np.testing.assert_allclose(ours, plain_plasma(drawn, side, decay), atol=1e-9)


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_fog_adds_plasma_and_scales_back_to_the_maximum(severity):
    density, decay = severity_options("fog", severity, "cifar").values()
    maps = plasma(Streams(0, "fog", severity, range(4)), 32, decay)
    for image, haze, got in zip(IMAGES / 255.0, maps, corrupt(IMAGES, "fog", severity=severity), strict=True):
        expected = (image + density * haze[..., None]) * image.max() / (image.max() + density)
        np.testing.assert_array_equal(got, (expected * 255).astype(np.uint8))


def test_fog_on_black_is_black():
    assert not corrupt(np.zeros((1, 32, 32, 3), np.uint8), "fog").any()


def plain_snow(image, noise, angle, options):
    size = len(image)
    flakes = options["mean"] + options["sd"] * noise
    kept = int(np.ceil(size / options["zoom"]))
    start = (size - kept) // 2
    flakes = ndimage.zoom(flakes[start : start + kept, start : start + kept], options["zoom"], order=1)
    trim = (len(flakes) - size) // 2
    flakes = flakes[trim : trim + size, trim : trim + size]
    flakes[flakes < options["threshold"]] = 0
    flakes = smear((np.clip(flakes, 0, 1) * 255).astype(np.uint8), options["radius"], options["sigma"], angle) / 255.0
    white = np.maximum(image, ((image @ [0.299, 0.587, 0.114]) * 1.5 + 0.5)[..., None])
    mixed = options["keep"] * image + (1 - options["keep"]) * white
    return np.clip(mixed + flakes[..., None] + np.rot90(flakes, 2)[..., None], 0, 1) * 255


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_snow_equals_the_plain_steps(severity):
    streams = Streams(0, "snow", severity, range(4))
    noise, angles = streams.normal(32, 32), streams.uniform(low=-135.0, high=-45.0)
    options = severity_options("snow", severity, "cifar")
    for image, layer, angle, got in zip(
        IMAGES / 255.0, noise, angles, corrupt(IMAGES, "snow", severity=severity), strict=True
    ):
        expected = plain_snow(image, layer, angle, options)
        assert np.abs(got + 0.5 - expected).max() < 0.51  # truncation, and float32 in ours


def test_snow_is_white_and_the_same_turned_around():
    black = np.zeros((3, 32, 32, 3), np.uint8)
    snowy = corrupt(black, "snow", severity=5)
    assert (snowy[..., 0] == snowy[..., 1]).all()
    np.testing.assert_array_equal(snowy, snowy[:, ::-1, ::-1])
    assert snowy.mean() > 20


LEVELS = [10, 50, 90, 130, 170, 210]
BLACK = np.zeros((300, 32, 32, 3), np.uint8)


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder of six flat pictures whose checksums stand in for the published ones."""
    folder = tmp_path / "frost"
    folder.mkdir()
    for name, level in zip(weather.FROST_FILES, LEVELS, strict=True):
        Image.new("RGBA" if name.endswith("png") else "RGB", (400, 300), (level, 0, 255)).save(folder / name)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setattr(weather, "FROST_FILES", dict(sorted(sums.items())))
    weather.scaled_pictures.cache_clear()
    yield folder
    weather.scaled_pictures.cache_clear()


def make_wheel(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"imagecorruptions/frost/{file.name}")
    return path


def test_pictures_come_from_a_folder_and_from_a_wheel_in_rgb(pictures, tmp_path):
    wheel = make_wheel(pictures, tmp_path / "x.whl")
    for source in (pictures, wheel):
        found = frost_pictures(source)
        assert [picture.shape for picture in found] == [(300, 400, 3)] * 6
        assert [int(picture[0, 0, 0]) for picture in found[:3]] == LEVELS[:3]
        assert all(picture[..., 2].min() > 250 for picture in found)


def test_the_data_folder_and_an_installed_package_are_searched(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    assert len(frost_pictures()) == 6
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "elsewhere"))
    package = tmp_path / "site" / "imgcorr"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('the package must not be run')")
    pictures.rename(package / "frost")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert len(frost_pictures()) == 6


def test_missing_pictures_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    monkeypatch.setattr(weather, "FROST_PACKAGES", ("no_such_package_here",))
    weather.scaled_pictures.cache_clear()
    with pytest.raises(InputError, match="asrnorm data fetch frost") as caught:
        corrupt(BLACK[:1], "frost")
    assert "\n" not in str(caught.value)


def test_a_changed_picture_is_refused_by_name(pictures):
    (pictures / "frost4.jpg").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"frost4\.jpg"):
        frost_pictures(pictures)


def test_a_file_that_is_no_wheel_is_refused_by_name(tmp_path):
    (tmp_path / "bad.whl").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match=r"bad\.whl"):
        frost_pictures(tmp_path / "bad.whl")


def test_the_first_five_pictures_are_drawn_alike_often(pictures):
    frosty = corrupt(BLACK, "frost", severity=5, source=pictures)
    red = np.round(frosty[..., 0].mean((1, 2)) / 0.45 / 40 - 0.25).astype(int)
    counts = np.bincount(red, minlength=6)
    assert counts[5] == 0
    assert counts[:5].min() > 35
    assert counts[:5].max() < 90


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (500, 20)])
def test_frost_is_a_weighted_sum_at_any_size(pictures, size):
    image = np.full((1, *size, 3), 100, np.uint8)
    keep, add = (0.9, 0.4) if max(size) <= 64 else (0.7, 0.7)
    frosty = corrupt(image, "frost", severity=3, source=pictures)
    assert np.abs(frosty[..., 2].astype(float) - min(255, keep * 100 + add * 255)).max() <= 2


@pytest.mark.parametrize("weights", [{"keep": 2, "add": 0}, {"keep": 0, "add": 3}, {"keep": 1, "add": -1}], ids=str)
def test_whole_weights_of_frost_do_not_wrap_around(pictures, weights):
    image = np.full((4, 32, 32, 3), 200, np.uint8)
    as_floats = {name: float(weight) for name, weight in weights.items()}
    frosty = corrupt(image, "frost", source=pictures, **weights)
    np.testing.assert_array_equal(frosty, corrupt(image, "frost", source=pictures, **as_floats))


def test_pieces_are_cut_at_many_places(monkeypatch):
    picture = np.random.default_rng(0).integers(0, 256, (100, 120, 3), dtype=np.uint8)
    monkeypatch.setattr(weather, "scaled_pictures", lambda *_: (picture,) * 5)
    frosty = corrupt(BLACK, "frost", severity=5, keep=0.0, add=1.0)
    places = {image[:2, :2].tobytes() for image in frosty}
    assert len(places) > 280
    assert places <= {picture[r : r + 2, c : c + 2].tobytes() for r in range(68) for c in range(88)}


@pytest.mark.data
def test_the_published_pictures_have_their_sizes():
    folder = Path(os.environ.get("ASRNORM_DATA", "")) / "frost"
    if not folder.is_dir():
        pytest.skip("the frost pictures are not under ASRNORM_DATA")
    shapes = [picture.shape[:2] for picture in frost_pictures(folder)]
    assert shapes == [(600, 900), (315, 560), (315, 560), (350, 527), (495, 660), (323, 485)]


DARK = np.random.default_rng(0).integers(0, 200, (6, 32, 32, 3), dtype=np.uint8)


def plain_water(image, layer, options):
    cv2 = pytest.importorskip("cv2")
    layer = np.where(layer < options["threshold"], 0, layer)
    liquid = (layer * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    distance[distance > 20] = 20
    distance = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
    emboss = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    light = liquid * cv2.blur(cv2.filter2D(distance, cv2.CV_8U, emboss), (3, 3)).astype(np.float32)
    water = np.array([175, 238, 238]) / 255
    return np.clip(image + (options["strength"] * light / light.max())[..., None] * water, 0, 1) * 255


def plain_mud(image, layer, options):
    filters = pytest.importorskip("skimage.filters")
    cover = filters.gaussian((layer > options["threshold"]).astype(np.float32), sigma=options["strength"])
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    return np.clip(image * (1 - cover) + np.array([63, 42, 20]) / 255 * cover, 0, 1) * 255


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_spatter_equals_the_plain_steps(severity):
    filters = pytest.importorskip("skimage.filters")
    options = severity_options("spatter", severity, "cifar")
    noise = Streams(0, "spatter", severity, range(6)).normal(32, 32)
    plain = plain_mud if options["mud"] else plain_water
    for image, drawn, got in zip(DARK, noise, corrupt(DARK, "spatter", severity=severity), strict=True):
        layer = filters.gaussian(options["mean"] + options["sd"] * drawn, sigma=options["sigma"])
        assert np.abs(got + 0.5 - plain(image / 255.0, layer, options)).max() < 0.51


def test_water_adds_light_and_mud_covers():
    black = np.zeros((20, 32, 32, 3), np.uint8)
    water = corrupt(black, "spatter", severity=3).reshape(-1, 3).astype(float)
    wet = water[water.max(axis=1) > 40]
    np.testing.assert_allclose(wet[:, 0] / wet[:, 1], 175 / 238, atol=0.03)
    mud = corrupt(np.full_like(black, 255), "spatter", severity=5).reshape(-1, 3)
    assert mud.min(axis=0) == pytest.approx([63, 42, 20], abs=1)
    assert 0.01 < (mud[:, 0] < 255).mean() < 0.5


def test_an_image_without_a_drop_stays_as_it_is():
    dry = corrupt(DARK, "spatter", severity=1, threshold=9.0)
    assert np.abs(dry.astype(int) - DARK).max() <= 1
