"""The order of batches is a function of seed and step; files give the same batches as memory."""

import numpy as np
import pytest
import torch
from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet, create_loader
from asrnorm.data.loader import BatchOrder
from helpers.published import noise


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
    batch = create_loader(data, batch_size=4, seed=2).batch(3)
    assert batch.images.shape == (4, 3, 6, 5)
    assert batch.images.dtype == torch.uint8
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    rows = batch.rows.numpy()
    np.testing.assert_array_equal(batch.images.permute(0, 2, 3, 1).numpy(), data.images[rows])
    np.testing.assert_array_equal(batch.labels.numpy(), data.labels[rows])


def test_a_resumed_loader_goes_on_as_if_never_stopped(data):
    whole = [batch.rows.tolist() for batch in create_loader(data, batch_size=4, seed=5).iterate(0, 17)]
    rest = [batch.rows.tolist() for batch in create_loader(data, batch_size=4, seed=5).iterate(9, 17)]
    assert rest == whole[9:]


def test_without_shuffling_an_epoch_is_the_set(data):
    loader = create_loader(data, batch_size=10, shuffle=False, drop_last=False)
    assert torch.cat([batch.labels for batch in loader]).tolist() == list(range(23))
    assert len(loader) == 3


def test_a_read_only_memory_map_is_taken_in_pieces(tmp_path, data, monkeypatch):
    monkeypatch.setattr("asrnorm.data.pool._COPY_ROWS", 4)
    np.save(tmp_path / "x.npy", data.images)
    mapped = ImageSet(np.load(tmp_path / "x.npy", mmap_mode="r"), data.labels)
    for own, other in zip(create_loader(mapped, batch_size=4), create_loader(data, batch_size=4), strict=True):
        assert torch.equal(own.images, other.images)


def test_files_give_the_batches_that_memory_gives(files):
    from_files, from_memory = (create_loader(data, batch_size=3, seed=4) for data in files)
    assert len(from_files) == len(from_memory)
    for own, other in zip(from_files.iterate(2, 8), from_memory.iterate(2, 8), strict=True):
        assert torch.equal(own.images, other.images)
        assert own.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(own.labels, other.labels)
        assert torch.equal(own.rows, other.rows)


def test_a_bad_file_is_one_line(files):
    file_set, _ = files
    file_set.paths[4].write_bytes(b"no image")
    with pytest.raises(InputError) as caught:
        list(create_loader(file_set, batch_size=2, shuffle=False))
    assert str(caught.value).startswith(f"{file_set.paths[4]}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
def test_batches_appear_on_the_gpu(files):
    from_files, from_memory = (create_loader(data, batch_size=3, seed=4, device="cuda") for data in files)
    for own, other in zip(from_files, from_memory, strict=True):
        assert own.images.is_cuda
        assert torch.equal(own.images, other.images)
        assert torch.equal(own.labels, other.labels)


@pytest.mark.parametrize("drop_last", [True, False])
def test_an_epoch_holds_every_image_at_most_once(drop_last):
    order = BatchOrder(count=23, batch_size=5, seed=3, drop_last=drop_last)
    for epoch in range(3):
        rows = torch.cat([order.rows(epoch * len(order) + step) for step in range(len(order))])
        assert len(set(rows.tolist())) == len(rows) == (20 if drop_last else 23)


def test_epochs_and_seeds_differ_and_repeat_themselves():
    order = BatchOrder(count=50, batch_size=50, seed=1)
    assert order.rows(0).tolist() != order.rows(1).tolist()
    assert order.rows(0).tolist() != BatchOrder(count=50, batch_size=50, seed=2).rows(0).tolist()
    assert order.rows(7).tolist() == BatchOrder(count=50, batch_size=50, seed=1).rows(7).tolist()


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    rows = BatchOrder(count=11, batch_size=3, seed=9).rows(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(BatchOrder(count=11, batch_size=3, seed=9).rows(4), rows)


def test_a_caller_cannot_change_the_order_for_others():
    order = BatchOrder(count=6, batch_size=6, seed=5)
    expected = order.rows(0).tolist()
    order.rows(0).zero_()
    assert order.rows(0).tolist() == expected


@pytest.mark.parametrize("options", [{"count": 0}, {"batch_size": 0}, {"seed": -1}, {"batch_size": 9}])
def test_sizes_that_give_no_batch_are_refused(options):
    with pytest.raises(InputError):
        BatchOrder(**{"count": 8, "batch_size": 2, **options})


def test_seed_and_epoch_are_not_added_up():
    orders = (BatchOrder(count=50, batch_size=50, seed=seed) for seed in range(9))
    assert len({tuple(order.rows(epoch).tolist()) for order in orders for epoch in range(9)}) == 81
