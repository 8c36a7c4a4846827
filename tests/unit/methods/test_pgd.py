import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.errors import InputError
from asrnorm.methods import Batch, create_method
from asrnorm.methods.attacks import perturb
from helpers.smooth_net import SmoothNet, random_images


def test_the_loss_is_that_of_the_last_images_of_the_attack():
    model, (images, labels) = SmoothNet(), random_images(6)
    settings = {"epsilon": 0.1, "step_size": 0.04, "steps": 3, "random_start": False, "keep_worst": False}
    expected = F.cross_entropy(model(perturb(model, images, labels, **settings)), labels)
    method = create_method("pgd", epsilon=0.1, ascent_lr=0.04, ascent_steps=3, random_start=False)
    assert torch.equal(method.loss(model, Batch(images, labels)), expected)
    assert expected > F.cross_entropy(model(images), labels)


def test_the_attack_leaves_running_statistics_to_the_training_pass():
    model, (images, labels) = SmoothNet(norm=True), random_images(6)
    create_method("pgd").loss(model, Batch(images, labels)).backward()
    assert model.training
    assert model.front[0].num_batches_tracked == 1
    assert model.hidden.weight.grad is not None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_parts_of_a_batch_start_where_the_whole_would(device):
    model, (images, labels) = SmoothNet().to(device), (part.to(device) for part in random_images(7))
    method = create_method("pgd", seed=2)
    whole = method.loss(model, Batch(images, labels, step=5))
    first = method.loss(model, Batch(images[:4], labels[:4], step=5, offset=0, total=7))
    second = method.loss(model, Batch(images[4:], labels[4:], step=5, offset=4, total=7))
    torch.testing.assert_close((4 * first + 3 * second) / 7, whole, rtol=1e-12, atol=0)


def test_every_step_and_seed_starts_elsewhere():
    model, (images, labels) = SmoothNet(), random_images(7)
    found = {
        create_method("pgd", seed=seed, ascent_steps=0).loss(model, Batch(images, labels, step=step)).item()
        for seed in (0, 1)
        for step in (0, 1)
    }
    assert len(found) == 4


def test_the_defaults_are_the_original_protocol():
    method = create_method("pgd")
    assert (method.epsilon * 255, method.ascent_lr * 255, method.ascent_steps) == (8, 2, 10)
    assert method.random_start


@pytest.mark.parametrize("wrong", [{"epsilon": -0.1}, {"ascent_lr": -1.0}, {"ascent_steps": -1}])
def test_negative_options_are_refused_before_a_run(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        create_method("pgd", **wrong)


def test_the_start_is_trained_on_also_where_it_is_easier_than_the_image():
    model, (images, labels) = SmoothNet(), random_images(12)
    method = create_method("pgd", epsilon=0.3, ascent_steps=0)
    noise = torch.rand(images.shape, generator=method.generator(0, "pgd.start"), dtype=images.dtype)
    start = (images + 0.3 * (2 * noise - 1)).clamp(0, 1)
    before, after = (F.cross_entropy(model(x), labels, reduction="none") for x in (images, start))
    assert bool((after < before).any())
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), after.mean())
