"""FileSet decodes one file at a time to the size it was given."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.image import read_image
from asrnorm.data.image_set import FileSet
from helpers.published import noise


def test_an_image_is_that_of_its_file(tmp_path):
    path = tmp_path / "x.png"
    Image.fromarray(noise(9, 7, 3)).save(path)
    data = FileSet((path, path), np.array([1, 0]), (4, 6))
    assert len(data) == 2
    np.testing.assert_array_equal(data.read(1), read_image(path, size=(4, 6)))
    assert data.class_counts(3).tolist() == [1, 1, 0]


@pytest.mark.parametrize("rows", [slice(None, None, 2), np.array([0, 2]), [0, 2]])
def test_some_of_the_images(rows):
    data = FileSet(tuple(Path(f"{name}.png") for name in "abc"), np.array([5, 6, 7]), (4, 6)).take(rows)
    assert [path.stem for path in data.paths] == ["a", "c"]
    assert (data.labels.tolist(), data.image_size) == ([5, 7], (4, 6))


@pytest.mark.parametrize("labels", [np.zeros(2, np.int64), np.zeros(1, np.int32)])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(InputError, match="FileSet: expected 1 int64 labels"):
        FileSet((Path("x.png"),), labels, (4, 4))
