import numpy as np
import pytest
import torch

from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.data import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.training.batches import Batches


def make_pool(count=10):
    images = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(3, 3)
    return Pool(ImageSet(images, np.arange(count)))


def test_an_epoch_has_every_image_once_and_the_next_another_order():
    batches = Batches(make_pool(), batch_size=5, seed=1)
    first, second = (torch.cat([batches.rows(step) for step in pair]).tolist() for pair in ((0, 1), (2, 3)))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_the_global_generator_is_neither_read_nor_moved():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    rows = Batches(make_pool(), batch_size=3, seed=9).rows(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(Batches(make_pool(), batch_size=3, seed=9).rows(4), rows)


def test_a_caller_cannot_change_the_order_for_others():
    batches = Batches(make_pool(), batch_size=10, seed=5)
    expected = batches.rows(0).tolist()
    batches.rows(0).zero_()
    assert batches.rows(0).tolist() == expected


def test_seed_and_epoch_are_not_added_up():
    orders = [Batches(make_pool(50), batch_size=50, seed=seed) for seed in range(9)]
    assert len({tuple(order.rows(epoch).tolist()) for order in orders for epoch in range(9)}) == 81


def test_without_shuffling_the_source_keeps_its_order_and_drops_the_short_batch():
    batches = Batches(make_pool(11), batch_size=5, shuffle=False)
    assert [batches.rows(step).tolist() for step in range(3)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]


def test_without_shuffling_a_grown_pool_is_mixed_once_and_then_cycled():
    pool = make_pool()
    batches = Batches(pool, batch_size=5, shuffle=False)
    pool.append(torch.ones(10, 3, 8, 8), torch.arange(10))
    cycle = [batches.rows(step).tolist() for step in range(8)]
    assert cycle[:4] == cycle[4:]
    assert sorted(row for rows in cycle[:4] for row in rows) == list(range(20))
    assert any(min(rows) < 10 <= max(rows) for rows in cycle)


def test_processes_split_one_batch():
    pool = make_pool()
    whole = Batches(pool, batch_size=5, augment="cifar").fetch(3)
    parts = [Batches(pool, batch_size=5, augment="cifar", world=World(rank, 2)).fetch(3) for rank in range(2)]
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
    assert torch.equal(torch.cat([part.rows for part in parts]), Batches(pool, batch_size=5).rows(3))
    assert [(part.offset, part.total, part.step) for part in parts] == [(0, 5, 3), (3, 5, 3)]


def test_a_source_smaller_than_a_batch_is_one_batch():
    assert sorted(Batches(make_pool(3), batch_size=5).rows(7).tolist()) == [0, 1, 2]


def test_a_batch_with_fewer_images_than_processes_is_refused():
    with pytest.raises(InputError, match="3 images is too small for 4 processes"):
        Batches(make_pool(), batch_size=3, world=World(0, 4))


def test_images_have_the_dtype_of_the_run():
    assert Batches(make_pool(), batch_size=2, dtype=torch.float64).fetch(0).images.dtype == torch.float64


@pytest.mark.parametrize("augment", ["none", "cifar", "pacs"])
def test_a_batch_follows_from_what_was_drawn_for_it(augment):
    pool = make_pool()
    pool.append(torch.rand(7, 3, 8, 8), torch.arange(7))
    batches = Batches(pool, batch_size=5, augment=augment)
    shapes = set()
    for step in range(4):
        drawn = batches.draw(step)
        shapes.add(tuple((name, value.shape, value.dtype) for name, value in drawn.items()))
        made, fetched = batches.make(drawn, step=step), batches.fetch(step)
        assert made._replace(images=0, labels=0, rows=0) == fetched._replace(images=0, labels=0, rows=0)
        for name in ("images", "labels", "rows"):
            assert torch.equal(getattr(made, name), getattr(fetched, name))
    assert len(shapes) == 1


@pytest.mark.parametrize("augment", ["cifar", "pacs"])
def test_an_image_is_augmented_anew_in_every_epoch(augment):
    batches = Batches(make_pool(), batch_size=10, shuffle=False, augment=augment)
    first, second = batches.draw(0), batches.draw(1)
    assert torch.equal(first.pop("rows"), second.pop("rows"))
    assert not any(torch.equal(first[name], second[name]) for name in first if first[name].unique().numel() > 2)


def test_processes_split_a_batch_whose_images_are_mixed_with_each_other():
    chain = ["cifar", {"name": "fourier", "share": 1.0}]
    pool = make_pool()
    whole = Batches(pool, batch_size=5, augment=chain).fetch(3)
    parts = [Batches(pool, batch_size=5, augment=chain, world=World(rank, 2)).fetch(3) for rank in range(2)]
    assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
    assert torch.equal(torch.cat([part.rows for part in parts]), whole.rows)
    assert not torch.equal(whole.images, Batches(pool, batch_size=5, augment="cifar").fetch(3).images)


def random_pool():
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3)).astype(np.uint8)
    return Pool(ImageSet(images, np.arange(10)))


def test_views_are_chains_on_top_of_one_augmentation():
    views = ["none", [{"name": "photometric", "share": 1.0}], "none"]
    plain = Batches(random_pool(), batch_size=5, augment="cifar").fetch(3)
    assert plain.views == ()
    batch = Batches(random_pool(), batch_size=5, augment="cifar", views=views).fetch(3)
    first, second, third = batch.views
    assert torch.equal(first, plain.images)
    assert batch.images is first
    assert torch.equal(third, first)
    assert not torch.equal(second, first)
    own = Batches(random_pool(), batch_size=5, augment="cifar", views=views, shared=False).fetch(3).views
    assert torch.equal(own[0], first)
    assert not torch.equal(own[2], first)


def test_processes_split_views_too():
    options = {"batch_size": 5, "augment": "cifar", "views": ["none", "augmix", ["fourier"]], "shared": False}
    whole = Batches(random_pool(), **options).fetch(2)
    parts = [Batches(random_pool(), world=World(rank, 2), **options).fetch(2) for rank in range(2)]
    for view in range(3):
        assert torch.equal(torch.cat([part.views[view] for part in parts]), whole.views[view])


def test_a_view_that_changes_the_size_is_refused():
    pool = Pool(ImageSet(np.zeros((4, 227, 227, 3), np.uint8), np.arange(4)))
    with pytest.raises(InputError):
        Batches(pool, batch_size=2, views=["none", "pacs"])


@pytest.mark.parametrize(("fold", "changed"), [("values", "noise"), ("structure", "blur")])
def test_a_fold_takes_its_half_of_augment_and_of_every_view(fold, changed):
    both = [{"name": "noise", "share": 1.0}, {"name": "blur", "share": 1.0}]
    batch = Batches(random_pool(), batch_size=5, augment=both, views=["none", both], shared=False, fold=fold).fetch(3)
    one = [{"name": changed, "share": 1.0}]
    plain = Batches(random_pool(), batch_size=5, augment=one, views=["none", one], shared=False).fetch(3)
    assert all(torch.equal(view, other) for view, other in zip(batch.views, plain.views, strict=True))
    assert not torch.equal(batch.views[0], batch.views[1])
