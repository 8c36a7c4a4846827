"""Both loaders give the same batches; a run that is resumed sees what it would have seen."""

import random

import numpy as np
import pytest
import torch
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data import DeviceLoader, FileLoader, FileSet, ImageSet, create_loader, create_suite
from asrnorm.data.loader import seed_worker
from helpers.published import noise, write_folder


@pytest.fixture
def data():
    return ImageSet(noise(23, 6, 5, 3), np.arange(23))


@pytest.fixture
def files(tmp_path):
    images = noise(11, 6, 5, 3)
    paths = []
    for row, image in enumerate(images):
        paths.append(tmp_path / f"{row:02d}.png")
        Image.fromarray(image).save(paths[-1])
    return FileSet(tuple(paths), np.arange(11), (6, 5)), ImageSet(images, np.arange(11))


def test_a_batch_holds_the_images_of_its_rows(data):
    batch = DeviceLoader(data, batch_size=4, seed=2).batch(3)
    assert batch.images.shape == (4, 3, 6, 5)
    assert batch.images.dtype == torch.uint8
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    rows = batch.rows.numpy()
    np.testing.assert_array_equal(batch.images.permute(0, 2, 3, 1).numpy(), data.images[rows])
    np.testing.assert_array_equal(batch.labels.numpy(), data.labels[rows])


def test_a_resumed_loader_goes_on_as_if_never_stopped(data):
    whole = [batch.rows.tolist() for batch in DeviceLoader(data, batch_size=4, seed=5).iterate(0, 17)]
    rest = [batch.rows.tolist() for batch in DeviceLoader(data, batch_size=4, seed=5).iterate(9, 17)]
    assert rest == whole[9:]


def test_without_shuffling_an_epoch_is_the_set(data):
    loader = DeviceLoader(data, batch_size=10, shuffle=False, drop_last=False)
    assert torch.cat([batch.labels for batch in loader]).tolist() == list(range(23))
    assert len(loader) == 3


def test_a_read_only_memory_map_is_taken_in_pieces(tmp_path, data, monkeypatch):
    monkeypatch.setattr("asrnorm.data.loader._COPY_ROWS", 4)
    np.save(tmp_path / "x.npy", data.images)
    mapped = ImageSet(np.load(tmp_path / "x.npy", mmap_mode="r"), data.labels)
    for own, other in zip(DeviceLoader(mapped, batch_size=4), DeviceLoader(data, batch_size=4), strict=True):
        assert torch.equal(own.images, other.images)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_files_give_the_batches_that_memory_gives(files, num_workers):
    file_set, image_set = files
    from_files = FileLoader(file_set, batch_size=3, seed=4, num_workers=num_workers)
    from_memory = DeviceLoader(image_set, batch_size=3, seed=4)
    assert len(from_files) == len(from_memory)
    for own, other in zip(from_files.iterate(2, 8), from_memory.iterate(2, 8), strict=True):
        assert torch.equal(own.images, other.images)
        assert own.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(own.labels, other.labels)
        assert torch.equal(own.rows, other.rows)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_bad_file_is_one_line_even_from_a_worker(files, num_workers):
    file_set, _ = files
    file_set.paths[4].write_bytes(b"no image")
    loader = FileLoader(file_set, batch_size=2, shuffle=False, num_workers=num_workers)
    with pytest.raises(InputError) as caught:
        list(loader)
    assert str(caught.value).startswith(f"{file_set.paths[4]}: cannot be read")
    assert "\n" not in str(caught.value)


def test_workers_have_streams_of_their_own():
    state = random.getstate(), np.random.get_state()
    drawn = []
    for worker in (0, 1, 0):
        torch.manual_seed(100 + worker)  # as torch does in each worker
        seed_worker(worker)
        drawn.append((random.random(), np.random.random()))
    random.setstate(state[0])
    np.random.set_state(state[1])
    assert drawn[0] == drawn[2]
    assert drawn[0][0] != drawn[1][0]
    assert drawn[0][1] != drawn[1][1]


def test_the_loader_fits_the_set(tmp_path, files):
    file_set, image_set = files
    assert isinstance(create_loader(file_set, batch_size=2, num_workers=0), FileLoader)
    assert isinstance(create_loader(image_set, batch_size=2), DeviceLoader)
    write_folder(tmp_path / "own")
    suite = create_suite("folder", root=tmp_path / "own", source="art", size=8, max_gigabytes=0)
    assert isinstance(create_loader(suite.train, batch_size=2, num_workers=0), FileLoader)


@pytest.mark.gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_appear_on_the_gpu(files, num_workers):
    file_set, image_set = files
    from_files = FileLoader(file_set, batch_size=3, seed=4, num_workers=num_workers, device="cuda")
    for own, other in zip(from_files, DeviceLoader(image_set, batch_size=3, seed=4, device="cuda"), strict=True):
        assert own.images.is_cuda
        assert torch.equal(own.images, other.images)
        assert torch.equal(own.labels, other.labels)
    file_set.paths[4].write_bytes(b"no image")
    with pytest.raises(InputError, match="cannot be read"):
        list(from_files)
