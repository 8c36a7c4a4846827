import math

import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.errors import InputError
from asrnorm.methods import Batch, create_method, m_ada
from asrnorm.methods.ascent import Ascent
from asrnorm.methods.m_ada import meta_loss
from helpers.smooth_net import SmoothNet, random_images, random_pool

SMALL = {"interval": 2, "ascent_steps": 2, "ascent_batch": 4, "ascent_lr": 4.0, "wae_epochs": 1}


def test_before_the_first_round_it_is_erm():
    model, (images, labels) = SmoothNet(), random_images(5)
    loss = create_method("m_ada").loss(model, Batch(images, labels))
    assert torch.equal(loss, F.cross_entropy(model(images), labels))


def test_after_it_the_batch_is_split_by_its_rows():
    method, model = create_method("m_ada", inner_lr=0.3, **SMALL), SmoothNet()
    method.grow(model, random_pool(6), 2)
    images, labels = random_images(5)
    batch = Batch(images, labels, rows=torch.tensor([0, 6, 5, 11, 2]))
    expected = meta_loss(model, batch, torch.tensor([True, False, True, False, True]), inner_lr=0.3, world=method.world)
    assert torch.equal(method.loss(model, batch), expected)


def test_the_auto_encoder_and_its_reward_keep_their_precision_under_autocast():
    model, found = SmoothNet().float(), []
    for enabled in (False, True):
        method, pool = create_method("m_ada", **{**SMALL, "wae_epochs": 30}), random_pool(64)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            log = method.grow(model, pool, 2)
            one = random_images(4)[0].float()
            reward = method._relax(one, one + 1e-3)
        found.append((log["wae_loss"], reward))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)
    torch.testing.assert_close(found[0][1], found[1][1])


def test_a_round_that_starts_from_no_image_is_left_out():
    method, pool, model = create_method("m_ada", **SMALL), random_pool(4), SmoothNet()
    logs = [method.grow(model, pool, step) for step in range(2, 16, 2)]
    assert logs[-1] == {"grown": 0, "pool": len(pool), "change": 0.0}
    assert all(math.isfinite(value) for log in logs for value in log.values())


def test_a_batch_without_rows_is_refused_once_there_are_two_kinds():
    method, model = create_method("m_ada", **SMALL), SmoothNet()
    method.grow(model, random_pool(6), 2)
    with pytest.raises(InputError, match="rows="):
        method.loss(model, Batch(*random_images(5)))


def test_the_auto_encoder_learns_the_newest_domain_each_time(monkeypatch):
    seen, fit = [], m_ada.fit
    monkeypatch.setattr(m_ada, "fit", lambda wae, pixels, **rest: (seen.append(pixels), fit(wae, pixels, **rest))[1])
    method, pool, model = create_method("m_ada", **SMALL), random_pool(12), SmoothNet()
    ends = [0, 12]
    for step in (2, 4, 6):
        method.grow(model, pool, step)
        ends.append(len(pool))
    assert ends == [0, 12, 24, 30, 34]
    for pixels, start, stop in zip(seen, ends, ends[1:], strict=False):
        domain = pool.images(torch.arange(start, stop)).double()
        torch.testing.assert_close(
            pixels, F.interpolate(domain, size=(32, 32), mode="area").flatten(1), atol=1e-6, rtol=0
        )


def test_the_relaxation_is_part_of_the_ascent():
    method, pool, model = create_method("m_ada", relaxation=1e5, **SMALL), random_pool(6), SmoothNet()
    method.grow(model, pool, 2)
    source, labels = pool.images(torch.arange(6)), pool.labels[:6]
    ascent = Ascent(steps=2, batch=4, lr=4.0)
    expected = ascent.climb(model, source, labels, lambda x, start: 1e5 * method.wae.change(x, start))
    assert torch.equal(pool.images(torch.arange(6, 12)), expected.float())
    assert not torch.allclose(expected, ascent.climb(model, source, labels), atol=1e-6)


def test_it_goes_further_from_the_domain_than_without_the_relaxation():
    left = {}
    for relaxation in (0.0, 1e6):
        method, pool = create_method("m_ada", relaxation=relaxation, **SMALL), random_pool(6)
        method.grow(SmoothNet(), pool, 2)
        method.wae.float()
        left[relaxation] = method.wae.change(pool.images(torch.arange(6, 12)), pool.images(torch.arange(6))).mean()
    assert left[1e6] > left[0.0]


def test_a_finished_run_starts_a_round_from_scratch():
    method, pool, model = create_method("m_ada", seed=1, **SMALL), random_pool(6), SmoothNet()
    with torch.no_grad():
        for value in method.wae.parameters():
            value.fill_(float("nan"))  # what an earlier round left behind has no say
    method.grow(model, pool, 2)
    fresh, same = create_method("m_ada", seed=1, **SMALL), random_pool(6)
    fresh.grow(model, same, 2)
    assert torch.equal(pool.images(torch.arange(12)), same.images(torch.arange(12)))


def test_its_networks_are_handed_to_the_trainer_and_saved():
    method = create_method("m_ada")
    assert method.modules() == {"wae": method.wae}
    assert set(method.state_dict()) == {"num_source", "newest", "wae"}
