from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import MissingDependencyError
from asrnorm.data.synthetic import sources as dependency
from asrnorm.data.synthetic.sources import PHOTOGRAPHS, load_photographs, sample_patches


@pytest.mark.parametrize(("package", "relative"), PHOTOGRAPHS)
def test_every_photograph_lies_inside_its_wheel(package, relative):
    distribution = {"skimage": "scikit-image", "sklearn": "scikit-learn"}[package]
    assert f"{package}/{relative}" in {str(file) for file in metadata.files(distribution) or ()}


def test_photographs_are_colored_and_large_enough():
    photographs = load_photographs()
    assert len(photographs) == len(PHOTOGRAPHS)
    for photograph in photographs:
        assert photograph.mode == "RGB"
        assert min(photograph.size) >= 200
        assert np.asarray(photograph.resize((16, 16)), int).std(axis=2).mean() > 5, "a grey picture"


def test_a_file_that_the_package_lacks_is_named(tmp_path, monkeypatch):
    package = SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(dependency, "import_module", lambda _: package)
    with pytest.raises(MissingDependencyError, match=r"astronaut\.png of scikit-image.*pip install"):
        load_photographs()


def test_patches_are_cut_at_many_places_and_scales():
    ramp = np.zeros((300, 400, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, 400)
    ramp[..., 1] = np.linspace(0, 255, 300)[:, None]
    patches = sample_patches([Image.fromarray(ramp)], 400, np.random.default_rng(0)).astype(float)
    middle = patches[:, 16, 16]
    assert middle[:, 0].min() < 50 < 200 < middle[:, 0].max()
    assert middle[:, 1].min() < 60 < 190 < middle[:, 1].max()
    slope = patches[:, :, -1, 0].mean(1) - patches[:, :, 0, 0].mean(1)  # negative where flipped
    assert 0.4 < (slope < 0).mean() < 0.6
    assert np.abs(slope).min() < 0.4 * np.abs(slope).max()


def test_a_photograph_smaller_than_a_patch_is_used_whole():
    tiny = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 25, 3), dtype=np.uint8))
    assert sample_patches([tiny], 3, np.random.default_rng(0)).shape == (3, 32, 32, 3)
