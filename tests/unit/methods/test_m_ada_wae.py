import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asrnorm.methods.m_ada import WassersteinAutoEncoder, fit, flatten


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
