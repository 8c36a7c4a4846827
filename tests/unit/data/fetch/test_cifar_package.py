import json

import numpy as np
import pytest
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data.fetch.cifar_package import BATCHES, rebuild_batches

ROWS = 4


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (6, ROWS, 32, 32, 3), np.uint8)
    for batch, name in zip(images, BATCHES, strict=True):
        rows = batch.reshape(ROWS, 1024, 3)
        opaque = np.concatenate([rows, np.full((ROWS, 1024, 1), 255, np.uint8)], axis=2)
        Image.fromarray(opaque).save(folder / f"{name}.png")
    labels = generator.integers(0, 10, 6 * ROWS).tolist()
    (folder / "train_lables.json").write_text(json.dumps(labels[: 5 * ROWS]))
    (folder / "test_lables.json").write_text(json.dumps(labels[5 * ROWS :]))
    return folder, images, labels


def test_each_record_is_a_label_and_three_planes(package, tmp_path):
    folder, images, labels = package
    rebuild_batches(folder, tmp_path / "out", ROWS)
    for index, name in enumerate(BATCHES):
        records = np.frombuffer((tmp_path / "out" / f"{name}.bin").read_bytes(), np.uint8).reshape(ROWS, 3073)
        assert records[:, 0].tolist() == labels[index * ROWS : (index + 1) * ROWS]
        np.testing.assert_array_equal(records[:, 1:].reshape(ROWS, 3, 32, 32), images[index].transpose(0, 3, 1, 2))
    assert (tmp_path / "out" / "batches.meta.txt").read_text().split()[0] == "airplane"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("test_lables.json", b"[1, 2"),
        ("test_lables.json", b"[1, 2, 3, 10]"),
        ("test_lables.json", b"[1, 2, 3, true]"),
        ("test_lables.json", b"{}"),
        ("test_lables.json", b"[1, 2, 3]"),
        ("test_lables.json", b"\xff\xfe"),
        ("test_batch.png", b"\x89PNG\r\n\x1a\n"),
        ("test_batch.png", b"GIF89a"),
        ("test_batch.png", None),
    ],
)
def test_a_damaged_package_is_one_line_that_names_the_file(package, tmp_path, file, content):
    folder = package[0]
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(InputError, match=rf"{file}|24 images"):
        rebuild_batches(folder, tmp_path / "out", ROWS)


def test_pictures_of_another_shape_are_refused(package, tmp_path):
    Image.new("RGB", (1024, ROWS + 1)).save(package[0] / "test_batch.png")
    with pytest.raises(InputError, match="expected"):
        rebuild_batches(package[0], tmp_path / "out", ROWS)


def test_every_cut_of_a_picture_is_refused(package, tmp_path):
    path = package[0] / "test_batch.png"
    whole = path.read_bytes()
    for end in range(0, len(whole) - 12, 997):  # the last 12 bytes only say that it is the end
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            rebuild_batches(package[0], tmp_path / "out", ROWS)
    path.write_bytes(whole)
    rebuild_batches(package[0], tmp_path / "out", ROWS)
