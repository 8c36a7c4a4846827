import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photos(tmp_path):
    """Two classes in two domains; the second domain is darker."""
    generator = np.random.default_rng(0)
    for domain, level in (("factory_a", 1.0), ("factory_b", 0.5)):
        for label, channel in (("good", 0), ("bad", 2)):
            folder = tmp_path / "photos" / domain / label
            folder.mkdir(parents=True)
            for index in range(12):
                image = generator.integers(0, 90, (40, 48, 3))
                image[..., channel] += 120
                Image.fromarray((image * level).astype(np.uint8)).save(folder / f"{index}.png")
    return tmp_path / "photos"
