import random

import numpy as np
import pytest
import torch
from PIL import Image

from asrnorm.bench import data
from asrnorm.bench.data import BASELINE, WORKS, PillowImages, natural_like, run
from asrnorm.core.errors import InputError
from asrnorm.data import ImageSet
from asrnorm.data.augment import to_float
from asrnorm.data.pool import Pool
from asrnorm.methods import keyed_generator
from asrnorm.training.batches import Batches


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_both_forms_of_a_work_give_the_same_kind_of_input(work):
    images = natural_like(2, work.side)
    one_by_one = PillowImages(images.permute(0, 2, 3, 1).contiguous().numpy(), work.pillow)
    stacked = to_float(torch.stack([one_by_one[0], one_by_one[1]]))
    batched = work.batched(images, torch.Generator().manual_seed(0))
    assert stacked.shape == batched.shape
    assert stacked.dtype == batched.dtype == torch.float32
    assert abs(stacked.mean() - batched.mean()) < 0.2


@pytest.mark.parametrize(("index", "kind"), [(2, "cifar"), (3, "pacs")])
def test_the_augmentation_of_a_suite_is_what_a_run_trains_on(index, kind):
    images = natural_like(2, WORKS[index].side)
    pool = Pool(ImageSet(images.permute(0, 2, 3, 1).contiguous().numpy(), np.arange(2)))
    trained_on = Batches(pool, batch_size=2, seed=5, shuffle=False, augment=kind).fetch(0).images
    assert torch.equal(WORKS[index].batched(images, keyed_generator(5, 0, "augment")), trained_on)


def test_an_item_depends_on_its_index_alone():
    images = natural_like(3, 32).permute(0, 2, 3, 1).contiguous().numpy()
    first, second = (PillowImages(images, WORKS[0].pillow) for _ in range(2))
    assert torch.equal(first[2], second[2])


def test_images_are_neither_flat_nor_noise():
    images = natural_like(4, 64).float()
    neighbours = (images[..., 1:] - images[..., :-1]).abs().mean()
    assert images.std() > 3 * neighbours
    assert torch.equal(natural_like(4, 64), natural_like(4, 64))


def test_a_run_reports_every_way_beside_the_baseline():
    rows = next(run(quick=True, workers=0, only=WORKS[2].name))
    assert [row.path for row in rows] == [BASELINE, "pillow, DataLoader with 0 workers", "tensors, CPU"]
    assert rows[0].ratio == 1.0
    assert all(row.per_second > 0 for row in rows)


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(data.torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match="torch sees no such CUDA device; use --device cpu"):
        next(run("cuda"))


def test_pillow_draws_stay_inside_the_image():
    image = Image.new("RGB", (40, 30), (10, 200, 30))
    sizes = {WORKS[3].pillow(image, random.Random(seed)).size for seed in range(5)}
    assert sizes == {(222, 222)}


@pytest.mark.gpu
@pytest.mark.parametrize("index", [0, 3])  # what has kernels
def test_a_gpu_has_its_rows(index):
    paths = [row.path for row in next(run("cuda", quick=True, workers=0, only=WORKS[index].name))]
    ways = ["tensors, GPU", "tensors, GPU, CUDA graph, no fused kernel", "tensors, GPU, CUDA graph"]
    assert paths[-3:] == ways
