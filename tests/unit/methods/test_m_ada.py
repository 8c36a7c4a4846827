import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch, create_method, m_ada
from asrnorm.methods.ascent import Ascent
from asrnorm.methods.m_ada import WassersteinAutoEncoder, fit, flatten, meta_loss
from asrnorm.models import create_model
from asrnorm.norms import NORMS
from helpers.smooth_net import SmoothNet, everything, random_images, random_pool

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
            reward = method._reward(one, one + 1e-3)
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
    expected = ascent.ascend(model, source, labels, lambda x, start: 1e5 * method.wae.change(x, start))
    assert torch.equal(pool.images(torch.arange(6, 12)), expected.float())
    assert not torch.allclose(expected, ascent.ascend(model, source, labels), atol=1e-6)


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


INNER_LR = 0.5  # large, so that the second-order part is a good part of the gradient


def batch_of(count=9, sources=4):
    images, labels = random_images(count)
    return Batch(images, labels), torch.arange(count) % 9 < sources


def gradient(model, batch, is_source, inner_lr=INNER_LR):
    model.zero_grad()
    meta_loss(model, batch, is_source, inner_lr=inner_lr, world=ALONE).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def formula(model, batch, is_source, weights):
    """The loss at given weights, with an inner step whose gradient is not differentiated again."""
    names, shapes = zip(*((name, value.shape) for name, value in model.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]

    def loss(flat, mask):
        parts = {n: p.view(s) for n, p, s in zip(names, flat.split(sizes), shapes, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, parts, (batch.images[mask],)), batch.labels[mask])

    leaf = weights.clone().requires_grad_()
    source = loss(leaf, is_source)
    (slope,) = torch.autograd.grad(source, leaf)
    return ((source + loss(weights - INNER_LR * slope, ~is_source)) / 2).item()


def test_its_gradient_is_that_of_finite_differences():
    model, (batch, is_source) = SmoothNet(), batch_of()
    found = gradient(model, batch, is_source)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    step = 1e-5
    expected = torch.empty_like(weights)
    for index in range(len(weights)):
        nudge = torch.zeros_like(weights)
        nudge[index] = step
        ahead, behind = (formula(model, batch, is_source, weights + sign * nudge) for sign in (1, -1))
        expected[index] = (ahead - behind) / (2 * step)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


def test_the_inner_step_is_differentiated_too():
    model, (batch, is_source) = SmoothNet(), batch_of()
    names = [name for name, _ in model.named_parameters()]
    source = F.cross_entropy(model(batch.images[is_source]), batch.labels[is_source])
    slopes = torch.autograd.grad(source, list(model.parameters()), retain_graph=True)
    moved = {n: p - INNER_LR * g for n, p, g in zip(names, model.parameters(), slopes, strict=True)}
    logits = torch.func.functional_call(model, moved, (batch.images[~is_source],))
    first_order = (source + F.cross_entropy(logits, batch.labels[~is_source])) / 2
    torch.testing.assert_close(
        meta_loss(model, batch, is_source, inner_lr=INNER_LR, world=ALONE), first_order, rtol=1e-12, atol=0
    )
    parts = torch.autograd.grad(first_order, list(model.parameters()))
    without = torch.cat([part.flatten() for part in parts])
    assert (gradient(model, batch, is_source) - without).norm() > 0.01 * without.norm()


def test_both_kinds_weigh_the_same_whatever_their_number():
    model, (images, labels) = SmoothNet(), random_images(9)
    lone = torch.arange(9) < 1
    losses = [F.cross_entropy(model(images[mask]), labels[mask]) for mask in (lone, ~lone)]
    value = meta_loss(model, Batch(images, labels), lone, inner_lr=0.0, world=ALONE)
    torch.testing.assert_close(value, sum(losses) / 2)


@pytest.mark.parametrize("kind", [True, False])
def test_a_batch_of_one_kind_gives_its_plain_mean(kind):
    model, (images, labels) = SmoothNet(), random_images(5)
    value = meta_loss(model, Batch(images, labels), torch.full((5,), kind), inner_lr=1.0, world=ALONE)
    assert torch.equal(value, F.cross_entropy(model(images), labels))


def test_parameters_stay_and_running_statistics_see_both_passes():
    model, (batch, is_source) = SmoothNet(norm=True), batch_of()
    before = everything(model)
    norm = model.front[0]
    expected = norm.running_mean.clone()
    for mask in (is_source, ~is_source):  # the norm stands first, so its input does not hang on the weights
        expected = 0.9 * expected + 0.1 * batch.images[mask].mean((0, 2, 3))
    loss = meta_loss(model, batch, is_source, inner_lr=INNER_LR, world=ALONE)
    torch.testing.assert_close(norm.running_mean, expected)
    assert norm.num_batches_tracked == 2
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before["state"][name])
        assert parameter.grad is None
        assert parameter.is_leaf
    loss.backward()


def test_frozen_parameters_take_no_part():
    model, (batch, is_source) = SmoothNet(), batch_of()
    model.hidden.requires_grad_(False)
    meta_loss(model, batch, is_source, inner_lr=INNER_LR, world=ALONE).backward()
    assert model.hidden.weight.grad is None
    assert model.last.weight.grad is not None


@pytest.mark.parametrize("norm", NORMS.names())
def test_every_norm_can_be_differentiated_twice(norm):
    model = create_model("digits_convnet", norm=norm, channels=(4, 6), hidden=16).double()
    images = torch.rand(6, 3, 32, 32, dtype=torch.float64)
    batch, is_source = Batch(images, torch.arange(6)), torch.arange(6) < 3
    meta_loss(model, batch, is_source, inner_lr=0.1, world=ALONE).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_it_has_the_published_sizes():
    counts = [
        sum(p.numel() for p in part.parameters())
        for part in (
            WassersteinAutoEncoder().encoder,
            WassersteinAutoEncoder().decoder,
            WassersteinAutoEncoder().critic,
        )
    ]
    assert counts == [3072 * 400 + 400 + 400 * 20 + 20, 20 * 400 + 400 + 400 * 3072 + 3072, 20 * 128 + 128 + 128 + 1]


def test_building_and_training_one_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    fit(WassersteinAutoEncoder(hidden=4), torch.rand(5, 3072, generator=seeded()), epochs=1, generator=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_are_drawn_as_linear_layers_draw_them():
    wae = WassersteinAutoEncoder()
    wae.reset(seeded(3))
    for layer in wae.modules():
        if isinstance(layer, nn.Linear):
            scaled = layer.weight.flatten() * math.sqrt(layer.in_features)
            assert 0.95 < scaled.max() <= 1
            assert -1 <= scaled.min() < -0.95


@pytest.mark.parametrize("size", [(64, 64), (222, 224), (40, 32), (7, 9)])
def test_images_of_other_sizes_are_averaged_over_areas(size):
    images = torch.rand(2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(flatten(images), F.interpolate(images, size=(32, 32), mode="area").flatten(1))


def test_images_of_its_own_size_are_taken_as_they_are():
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(flatten(images), images.flatten(1))


def test_change_is_the_mean_squared_difference_of_reconstructions():
    wae = WassersteinAutoEncoder()
    one, two = torch.rand(2, 4, 3, 32, 32)
    first, second = (torch.sigmoid(wae.decoder(wae.encoder(x.flatten(1)))) for x in (one, two))
    torch.testing.assert_close(wae.change(one, two), ((first - second) ** 2).sum(1) / 3072)
    assert torch.equal(wae.change(one, one), torch.zeros(4))


def test_the_two_losses_are_those_written_out():
    wae = WassersteinAutoEncoder(hidden=6, latent=2, critic_hidden=3).double()
    pixels = torch.rand(5, 3072, dtype=torch.float64)
    prior = torch.randn(5, 2, dtype=torch.float64)
    codes = wae.encoder(pixels)
    density = torch.distributions.Normal(0.0, 1.0).log_prob(prior).sum(1)
    drawn, coded = (torch.sigmoid(wae.critic(z).squeeze(1) + density) for z in (prior, codes))
    torch.testing.assert_close(wae.critic_loss(codes, prior), -drawn.log().mean() - (1 - coded).log().mean())
    output = wae.reconstruct(pixels)
    entropy = -(pixels * output.log() + (1 - pixels) * (1 - output).log()).sum()
    torch.testing.assert_close(wae.loss(pixels, prior, 7.0), entropy - 7 * coded.log().mean())


def test_training_learns_to_reconstruct_and_repeats_itself():
    stripes = (torch.arange(32) % 2).float().expand(2, 3, 32, 32).clone()
    stripes[1] = 1 - stripes[1]
    pixels = flatten(stripes.repeat(8, 1, 1, 1))
    nets = []
    for _ in range(2):
        wae = WassersteinAutoEncoder(hidden=16)
        wae.reset(seeded(1))
        fit(wae, pixels, epochs=40, batch_size=4, generator=seeded(2))
        nets.append(wae)
    assert (nets[0].reconstruct(pixels) - pixels).abs().mean() < 0.1
    torch.testing.assert_close(nets[0].state_dict(), nets[1].state_dict(), rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in nets[0].parameters())


def test_without_a_word_it_trains_as_m_ada_s_code_does():
    pixels = torch.rand(40, 3072, generator=seeded())
    found = []
    for options in ({}, {"lr": 1e-3, "batch_size": 32, "critic_weight": 100.0}, {"critic_weight": 1.0}):
        wae = WassersteinAutoEncoder(hidden=8)
        found.append(fit(wae, pixels, epochs=2, generator=seeded(4), **options))
    assert found[0] == found[1] != found[2]


def test_critic_and_auto_encoder_step_in_turn_each_on_its_own_loss():
    wae = WassersteinAutoEncoder(hidden=6, latent=3).double()
    mine = copy.deepcopy(wae)
    pixels = torch.rand(5, 3072, dtype=torch.float64)
    fit(wae, pixels, epochs=1, generator=seeded(4), lr=0.01, critic_weight=50.0)

    generator = seeded(4)
    pixels = pixels[torch.randperm(5, generator=generator)]
    prior = torch.randn(5, 3, generator=generator).double()
    step_of_adam(mine.critic, 50 * mine.critic_loss(mine.encoder(pixels).detach(), prior))
    loss = mine.loss(pixels, prior, 50.0)  # by the critic that has just learned
    step_of_adam(nn.ModuleList([mine.encoder, mine.decoder]), loss)
    torch.testing.assert_close(wae.state_dict(), mine.state_dict(), rtol=1e-9, atol=1e-12)


def step_of_adam(module, loss, lr=0.01):
    """Adam's first step: without a past, both of its averages are those of the one gradient."""
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter -= lr * gradient / (gradient.abs() + 1e-8)


@pytest.mark.parametrize("beyond", [-3.0, 4.0])
def test_values_beyond_the_range_count_as_its_ends(beyond):
    losses = []
    for value in (beyond, min(max(beyond, 0.0), 1.0)):
        wae = WassersteinAutoEncoder(hidden=4)
        losses.append(fit(wae, torch.full((4, 3072), value), epochs=2, generator=seeded()))
    assert losses[0] == losses[1]
