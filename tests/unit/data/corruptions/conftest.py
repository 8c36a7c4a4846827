import numpy as np
import pytest

from asrnorm.data.corruptions import weather


@pytest.fixture
def made_up_frost(monkeypatch):
    """Six made-up pictures, so that frost needs no download."""
    from asrnorm.data.corruptions.tensors.weather import load_photographs

    pictures = tuple(np.random.default_rng(1).integers(0, 256, (6, 400, 400, 3), dtype=np.uint8))
    monkeypatch.setattr(weather, "frost_pictures", lambda _source: pictures)
    caches = weather.scaled_pictures, load_photographs
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()
