"""MetaReg: its step of phi against finite differences in NumPy, its phase, and what it refuses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.data import ImageSet
from asrnorm.data.pool import Pool
from asrnorm.methods import Batch
from helpers.smooth_net import SmoothNet, assert_untouched, everything, random_images, random_pool


def cross_entropy(x, weight, bias, labels):
    logits = x @ weight.T + bias
    logits = logits - logits.max(1, keepdims=True)
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    rows = np.arange(len(labels))
    slope = probability.copy()
    slope[rows, labels] -= 1
    return -np.log(probability[rows, labels]).mean(), slope.T @ x / len(labels)


def loss_after_inner_steps(phi, theta, bias, first, second, lr, steps):
    for _ in range(steps):
        theta = theta - lr * (cross_entropy(first[0], theta, bias, first[1])[1] + phi * np.sign(theta))
    return cross_entropy(second[0], theta, bias, second[1])[0]


def test_phi_goes_down_the_slope_of_the_other_domains_loss_through_the_inner_steps():
    draw = np.random.default_rng(0)
    theta, bias, phi = draw.normal(size=(3, 4)), draw.normal(size=3), draw.uniform(0.1, 0.2, (3, 4))
    first, second = ((draw.normal(size=(6, 4)), draw.integers(0, 3, 6)) for _ in range(2))
    method = asrnorm.create_method("metareg", lr=0.3, inner_steps=3, meta_lr=0.5)
    tensors = [torch.from_numpy(value) for value in (theta, bias)]
    pairs = [tuple(map(torch.from_numpy, pair)) for pair in (first, second)]
    found = method._meta_step(torch.from_numpy(phi).requires_grad_(), *tensors, *pairs).detach().numpy()
    slope = np.zeros_like(phi)
    for index in np.ndindex(phi.shape):
        step = np.zeros_like(phi)
        step[index] = 1e-6
        high, low = (loss_after_inner_steps(phi + s, theta, bias, first, second, 0.3, 3) for s in (step, -step))
        slope[index] = (high - low) / 2e-6
    np.testing.assert_allclose(found, np.maximum(phi - 0.5 * slope, 0), rtol=1e-6, atol=1e-8)
    assert not np.allclose(found, phi, rtol=1e-2)


def pool_of_domains(count=24):
    plain = random_pool(count)
    images = (255 * plain.images(torch.arange(count))).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return Pool(ImageSet(images, plain.labels.numpy(), np.arange(count) % 3))


def test_the_phase_learns_phi_and_leaves_the_network_alone():
    model, method = SmoothNet(norm=True), asrnorm.create_method("metareg", phase_steps=6, lr=0.5, meta_lr=2.0, seed=1)
    before = everything(model)
    log = method.grow(model, pool_of_domains(), 0)
    assert_untouched(model, before)
    assert method.phi.shape == model.last.weight.shape
    assert method.phi.min() >= 0
    assert method.phi.max() > 0
    assert log["phi"] == pytest.approx(float(method.phi.mean()))
    assert not method.is_growing(0)


def test_the_loss_adds_the_weighted_magnitudes_of_the_classifier():
    (images, labels), model, method = random_images(5), SmoothNet(), asrnorm.create_method("metareg")
    plain = F.cross_entropy(model(images), labels)
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), plain)
    phi = torch.rand_like(model.last.weight)
    method.load_state_dict({"phi": phi})
    penalty = np.sum(phi.numpy() * np.abs(model.last.weight.detach().numpy()))
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), plain + penalty)


def test_a_single_source_and_numbers_out_of_range_are_refused():
    with pytest.raises(InputError, match="metareg needs several sources: choose one with --target"):
        asrnorm.create_method("metareg").grow(SmoothNet(), random_pool(8), 0)
    for option in ({"phase_steps": 0}, {"inner_steps": 0}, {"lr": -1.0}):
        with pytest.raises(InputError, match=f"metareg: {next(iter(option))} must be at least"):
            asrnorm.create_method("metareg", **option)
