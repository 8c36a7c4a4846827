import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.distributed import ALONE
from asrnorm.methods.base import Batch
from asrnorm.methods.m_ada import meta_loss
from asrnorm.models import create_model
from asrnorm.norms import NORMS
from helpers.smooth_net import SmoothNet, everything, random_images

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
