import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet
from asrnorm.data.pool import Pool


def picture_set(count=5):
    images = np.random.default_rng(0).integers(0, 256, (count, 6, 7, 3)).astype(np.uint8)
    return ImageSet(images, np.arange(count))


def test_source_and_grown_images_come_back_by_row():
    data = picture_set()
    pool = Pool(data)
    grown = torch.linspace(-1, 2, 2 * 3 * 6 * 7).view(2, 3, 6, 7)
    pool.append(grown, torch.tensor([7, 8]))
    pool.append((grown[:1].clamp(0, 1) * 255).to(torch.uint8), torch.tensor([9]))
    images = pool.images(torch.tensor([6, 1, 5, 7]))
    assert torch.equal(images[0], grown[1])
    assert torch.equal(images[1], torch.from_numpy(data.images[1]).permute(2, 0, 1).float() / 255)
    assert torch.equal(images[2], grown[0])
    assert float(images[3].max()) <= 1
    assert pool.labels.tolist() == [0, 1, 2, 3, 4, 7, 8, 9]
    assert (len(pool), pool.num_source) == (8, 5)


def test_a_read_only_memory_map_is_taken_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("asrnorm.data.pool._COPY_ROWS", 2)
    data = picture_set()
    np.save(tmp_path / "x.npy", data.images)
    mapped = ImageSet(np.load(tmp_path / "x.npy", mmap_mode="r"), data.labels)
    assert torch.equal(Pool(mapped).images(torch.arange(5)), Pool(data).images(torch.arange(5)))


def test_restore_puts_other_parts_in_place():
    pool = Pool(picture_set())
    pool.append(torch.zeros(4, 3, 6, 7), torch.zeros(4, dtype=torch.long))
    pool.restore([(torch.ones(2, 3, 6, 7), torch.tensor([3, 3]))])
    assert (len(pool), len(pool.parts)) == (7, 1)
    assert pool.labels.tolist() == [0, 1, 2, 3, 4, 3, 3]
    assert float(pool.images(torch.tensor([6])).min()) == 1.0
    pool.restore([])
    assert len(pool) == 5
    assert torch.equal(pool.images(torch.arange(5)), Pool(picture_set()).images(torch.arange(5)))


def test_files_are_decoded_when_asked_for(tmp_path):
    data = picture_set()
    for row, image in enumerate(data.images):
        Image.fromarray(image).save(tmp_path / f"{row}.png")
    files = FileSet(tuple(tmp_path / f"{row}.png" for row in range(5)), data.labels, (6, 7))
    rows = torch.tensor([3, 0, 3])
    pool = Pool(files)
    assert torch.equal(pool.images(rows), Pool(data).images(rows))
    assert pool.images(rows).stride() == Pool(data).images(rows).stride(), "or a network would round otherwise"
    pool.append(torch.ones(1, 3, 6, 7), torch.tensor([1]))
    assert float(pool.images(torch.tensor([5, 2]))[0].min()) == 1.0


def test_images_of_another_size_are_refused():
    with pytest.raises(InputError):
        Pool(picture_set()).append(torch.ones(1, 3, 7, 7), torch.tensor([1]))


def test_rows_that_are_not_read_choose_the_same_images():
    pool = Pool(ImageSet(np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8), np.arange(5)))
    pool.append(torch.rand(3, 3, 8, 8) * 3 - 1, torch.arange(3))
    pool.append(torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8), torch.arange(4))
    rows = torch.tensor([11, 0, 4, 5, 7, 8, 8, 2])
    assert torch.equal(pool._choose(rows), pool.images(rows))


def test_decoding_leaves_the_filters_of_warnings_alone(tmp_path):
    paths = tuple(tmp_path / f"{row}.png" for row in range(8))
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    pool = Pool(FileSet(paths, np.zeros(8, np.int64), (4, 4)))
    before = list(warnings.filters)
    for _ in range(30):
        pool.images(torch.arange(8))
    assert list(warnings.filters) == before


def test_domains_follow_their_images_and_generated_images_have_none():
    data = picture_set()
    pool = Pool(ImageSet(data.images, data.labels, np.array([0, 0, 1, 1, 2])))
    pool.append(torch.zeros(2, 3, 6, 7), torch.tensor([1, 1]))
    assert pool.domains.tolist() == [0, 0, 1, 1, 2, -1, -1]
    pool.restore([])
    assert pool.domains.tolist() == [0, 0, 1, 1, 2]
    assert Pool(data).domains is None
