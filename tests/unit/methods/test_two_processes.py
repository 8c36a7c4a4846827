"""Grow phases and meta steps on two processes give the numbers of one."""

import pytest
import torch
import torch.distributed as distributed
from torch import multiprocessing

from asrnorm.core.distributed import ALONE, World
from asrnorm.methods import Batch, create_method
from asrnorm.methods.m_ada import meta_loss
from asrnorm.models import create_model
from helpers.smooth_net import SmoothNet, random_images, random_pool

OPTIONS = {"interval": 2, "ascent_steps": 3, "ascent_batch": 4, "ascent_lr": 8.0}
METHODS = {
    "ada": {"growth": "volpi", "count": 11},
    "me_ada": {"quantize": True},
    "m_ada": {"wae_epochs": 1},
}
BATCH = 7  # shares of 4 and 3


def grow(name, world):
    method, pool, model = create_method(name, seed=5, **OPTIONS, **METHODS[name]), random_pool(13), SmoothNet(norm=True)
    method.world = world
    logs = [method.grow(model, pool, step) for step in (2, 4)]
    return pool.images(torch.arange(len(pool))), pool.labels, logs, method.state_dict()


def grow_by_batch_statistics(world):
    torch.manual_seed(0)
    model = create_model("digits_convnet", norm="bn_test", channels=(2, 3), hidden=8).double()
    method, pool = create_method("ada", growth="source", **OPTIONS), random_pool(9, size=32)
    method.world = world
    method.grow(model, pool, 2)
    return pool.images(torch.arange(len(pool)))


def meta_gradient(world, sources):
    """Gradient of the meta loss as the trainer joins it: each process's, weighted by its share of the batch."""
    model, (images, labels) = SmoothNet(), random_images(BATCH)
    own = world.share(BATCH)
    batch = Batch(images[own], labels[own], offset=own.start, total=BATCH)
    loss = meta_loss(model, batch, (torch.arange(BATCH) < sources)[own], inner_lr=0.5, world=world)
    (loss * len(batch.labels) / BATCH).backward()
    parameters = list(model.parameters())
    world.sum_gradients(parameters)
    return [parameter.grad for parameter in parameters]


def everything(world):
    return {
        "pools": {name: grow(name, world) for name in METHODS},
        "batch_statistics": grow_by_batch_statistics(world),
        "meta": {sources: meta_gradient(world, sources) for sources in (0, 3, 5, BATCH)},
    }


def work(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    torch.save(everything(World(rank=rank, size=2)), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    multiprocessing.spawn(work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def alone():
    return everything(ALONE)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", METHODS)
def test_every_process_grows_the_pool_of_a_single_one(found, alone, rank, name):
    torch.testing.assert_close(found[rank]["pools"][name], alone["pools"][name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_norm_of_the_batch_sees_the_same_batches(found, alone, rank):
    torch.testing.assert_close(found[rank]["batch_statistics"], alone["batch_statistics"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("sources", [0, 3, 5, BATCH])  # with 3 the second process has no source image
def test_the_meta_gradient_is_that_of_a_single_process(found, alone, rank, sources):
    torch.testing.assert_close(found[rank]["meta"][sources], alone["meta"][sources], rtol=1e-8, atol=1e-12)
