import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.corruptions import corrupt, frost_pictures
from asrnorm.data.corruptions import weather as frost

LEVELS = [10, 50, 90, 130, 170, 210]
IMAGES = np.zeros((300, 32, 32, 3), np.uint8)


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """A folder of six flat pictures whose checksums stand in for the published ones."""
    folder = tmp_path / "frost"
    folder.mkdir()
    for name, level in zip(frost.FROST_FILES, LEVELS, strict=True):
        Image.new("RGBA" if name.endswith("png") else "RGB", (400, 300), (level, 0, 255)).save(folder / name)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setattr(frost, "FROST_FILES", dict(sorted(sums.items())))
    frost._scaled_pictures.cache_clear()
    yield folder
    frost._scaled_pictures.cache_clear()


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
    monkeypatch.setattr(frost, "FROST_PACKAGES", ("no_such_package_here",))
    frost._scaled_pictures.cache_clear()
    with pytest.raises(InputError, match="asrnorm data fetch frost") as caught:
        corrupt(IMAGES[:1], "frost")
    assert "\n" not in str(caught.value)


def test_a_changed_picture_is_refused_by_name(pictures):
    (pictures / "frost4.jpg").write_bytes(b"something else")
    with pytest.raises(InputError, match=r"frost4\.jpg is not the published file"):
        frost_pictures(pictures)


def test_a_file_that_is_no_wheel_is_refused_by_name(tmp_path):
    (tmp_path / "bad.whl").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(InputError, match=r"bad\.whl is not a wheel"):
        frost_pictures(tmp_path / "bad.whl")


def test_the_first_five_pictures_are_drawn_alike_often(pictures):
    frosty = corrupt(IMAGES, "frost", severity=5, source=pictures)
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


def test_pieces_are_cut_at_many_places(monkeypatch):
    picture = np.random.default_rng(0).integers(0, 256, (100, 120, 3), dtype=np.uint8)
    monkeypatch.setattr(frost, "_scaled_pictures", lambda *_: (picture,) * 5)
    frosty = corrupt(IMAGES, "frost", severity=5, keep=0.0, add=1.0)
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
