"""Two processes that share a global batch or a grow phase give the numbers of one process."""

import numpy as np
import pytest
import torch

from asrnorm.core.distributed import ALONE
from asrnorm.data.image_set import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch, create_method
from asrnorm.methods.m_ada import meta_loss
from asrnorm.models import WideResNet, create_model
from asrnorm.norms import NORMS
from helpers.process_pair import run_in_processes
from helpers.smooth_net import SmoothNet, random_images, random_pool

LOSSES = {
    "erm": {},
    "rda": {},
    "rsda": {"candidates": 7, "search_images": 30, "search_batch": 8},
    "esda": {"population": 6, "generations": 3, "search_images": 30, "search_batch": 8},
    "rsc v1": {"version": "v1", "margin": 0.0},
    "rsc v2": {"version": "v2", "margin": 0.0},
    "rsc v3": {"version": "v3", "margin": 0.0},
    "rsc v1 flipped": {"version": "v1", "margin": 0.0, "flip": True},
}
STEPS = range(1, 7)  # both sides of RSC's coin


def train_with_every_loss(world):
    """Found tuples, and the global loss and its gradient in each step, of every method."""
    torch.manual_seed(0)
    model = WideResNet(10, 1, num_classes=3, norm_layer=NORMS["asr"]).double()
    images = torch.rand(8, 3, 16, 16, dtype=torch.float64)
    labels = torch.randint(0, 3, (8,))
    generator = np.random.default_rng(0)
    pool = Pool(ImageSet(generator.integers(0, 256, (40, 16, 16, 3), np.uint8), generator.integers(0, 3, 40)))
    own = slice(0, 8) if world.size == 1 else (slice(0, 5), slice(5, 8))[world.rank]
    result = {}
    for name, options in LOSSES.items():
        method = create_method(name.split()[0], seed=3, **options)
        method.world = world
        found = [method.grow(model, pool, step) for step in (10, 20)]
        losses, gradients = [], []
        for step in STEPS:
            model.zero_grad()
            loss = method.loss(model, Batch(images[own], labels[own], step, own.start, 8)) * len(labels[own]) / 8
            loss.backward()
            world.sum_gradients(list(model.parameters()))
            losses.append(world.sum(loss.detach()))
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        result[name] = found, method.state_dict(), torch.stack(losses), torch.stack(gradients)
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_with_every_loss(ALONE), run_in_processes(train_with_every_loss, tmp_path_factory.mktemp("gloo"))


@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_give_what_one_gives(runs, name):
    alone, pair = runs
    found, state, losses, gradients = alone[name]
    for result in pair:
        assert result[name][0] == found
        assert result[name][1].keys() == state.keys()
        assert all(torch.equal(result[name][1][key], value) for key, value in state.items())
        torch.testing.assert_close(result[name][2], losses, rtol=1e-8, atol=0)
        torch.testing.assert_close(result[name][3], gradients, rtol=1e-8, atol=1e-12)


def test_what_is_compared_is_not_plain_training(runs):
    alone, _ = runs
    assert len(alone["rsda"][1]["ops"]) == len(alone["esda"][1]["ops"]) == 3
    assert len({tuple(alone[name][2].tolist()) for name in LOSSES}) == len(LOSSES)
    for name in LOSSES:
        changed = alone[name][2] != alone["erm"][2]
        assert changed.all() if name.startswith("rsc") else changed.any() or name == "erm"
    coins = [torch.rand((), generator=create_method("rsc", seed=3).generator(step, "coin")) < 0.5 for step in STEPS]
    assert {bool(coin) for coin in coins} == {True, False}


OPTIONS = {"interval": 2, "ascent_steps": 3, "ascent_batch": 4, "ascent_lr": 8.0}
GROWING = {
    "ada": {"growth": "volpi", "count": 11},
    "me_ada": {"quantize": True},
    "m_ada": {"wae_epochs": 1},
}
BATCH = 7  # shares of 4 and 3


def grow(name, world):
    method, pool, model = create_method(name, seed=5, **OPTIONS, **GROWING[name]), random_pool(13), SmoothNet(norm=True)
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


def grow_and_differentiate(world):
    return {
        "pools": {name: grow(name, world) for name in GROWING},
        "batch_statistics": grow_by_batch_statistics(world),
        "meta": {sources: meta_gradient(world, sources) for sources in (0, 3, 5, BATCH)},
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return run_in_processes(grow_and_differentiate, tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def alone():
    return grow_and_differentiate(ALONE)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", GROWING)
def test_every_process_grows_the_pool_of_a_single_one(found, alone, rank, name):
    torch.testing.assert_close(found[rank]["pools"][name], alone["pools"][name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_norm_of_the_batch_sees_the_same_batches(found, alone, rank):
    torch.testing.assert_close(found[rank]["batch_statistics"], alone["batch_statistics"], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("sources", [0, 3, 5, BATCH])  # with 3 the second process has no source image
def test_the_meta_gradient_is_that_of_a_single_process(found, alone, rank, sources):
    torch.testing.assert_close(found[rank]["meta"][sources], alone["meta"][sources], rtol=1e-8, atol=1e-12)
