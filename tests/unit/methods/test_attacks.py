import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import InputError
from asrnorm.methods.attacks import perturb, worse
from helpers.smooth_net import SmoothNet, assert_untouched, everything, random_images


def losses(model, images, labels):
    with torch.no_grad():
        return F.cross_entropy(model(images), labels, reduction="none")


@given(
    seed=st.integers(0, 10_000),
    epsilon=st.floats(0, 0.5),
    step_size=st.floats(0, 1),
    steps=st.integers(0, 6),
    random_start=st.booleans(),
    keep_worst=st.booleans(),
)
def test_it_stays_in_the_ball_and_the_range_and_never_lowers_the_loss(
    seed, epsilon, step_size, steps, random_start, keep_worst
):
    model, (images, labels) = SmoothNet(seed=seed), random_images(6, seed=seed)
    found = perturb(
        model,
        images,
        labels,
        epsilon=epsilon,
        step_size=step_size,
        steps=steps,
        random_start=random_start,
        generator=torch.Generator().manual_seed(seed),
        keep_worst=keep_worst,
    )
    assert (found - images).abs().max() <= epsilon + 1e-12
    assert found.min() >= 0
    assert found.max() <= 1
    if keep_worst:
        assert (losses(model, found, labels) >= losses(model, images, labels)).all()


def test_small_signed_steps_raise_the_loss_of_every_image():
    model, (images, labels) = SmoothNet(), random_images(20)
    found = perturb(model, images, labels, epsilon=0.01, step_size=0.001, steps=5, random_start=False, keep_worst=False)
    assert (losses(model, found, labels) > losses(model, images, labels)).all()


def test_two_steps_are_those_computed_by_hand():
    model, (images, labels) = SmoothNet(), random_images(5)
    x = images
    for _ in range(2):
        x = x.detach().requires_grad_()
        F.cross_entropy(model(x), labels).backward()
        stepped = (x.detach() + 0.06 * x.grad.sign()).clamp(0, 1)
        x = torch.minimum(torch.maximum(stepped, images - 0.1), images + 0.1)
    found = perturb(model, images, labels, epsilon=0.1, step_size=0.06, steps=2, random_start=False, keep_worst=False)
    torch.testing.assert_close(found, x.detach(), rtol=0, atol=1e-15)


def test_the_worst_image_of_all_that_were_passed_is_kept():
    model, (images, labels) = SmoothNet(), random_images(30)

    def attack(steps, keep_worst):
        settings = {"epsilon": 0.5, "step_size": 0.4, "random_start": False}  # steps so long that they overshoot
        return perturb(model, images, labels, steps=steps, keep_worst=keep_worst, **settings)

    passed = torch.stack([losses(model, attack(steps, False), labels) for steps in range(5)])
    kept = losses(model, attack(4, True), labels)
    torch.testing.assert_close(kept, passed.amax(0), rtol=1e-12, atol=0)
    assert (kept > passed[-1]).any()


def test_one_step_of_the_whole_radius_is_a_signed_one():
    model, (images, labels) = SmoothNet(), random_images(5)
    inside = 0.2 + 0.6 * images
    x = inside.clone().requires_grad_()
    F.cross_entropy(model(x), labels).backward()
    one = {"epsilon": 0.1, "step_size": 0.1, "steps": 1, "random_start": False}
    found = perturb(model, inside, labels, **one, keep_worst=False)
    torch.testing.assert_close(found, inside + 0.1 * x.grad.sign())
    kept = losses(model, perturb(model, inside, labels, **one), labels)
    torch.testing.assert_close(kept, torch.maximum(losses(model, found, labels), losses(model, inside, labels)))


def test_of_two_images_with_equal_losses_the_first_is_kept():
    first, second = torch.zeros(3, 1, 2, 2), torch.ones(3, 1, 2, 2)
    images, losses = worse(first, torch.tensor([1.0, 1.0, 1.0]), second, torch.tensor([1.0, 2.0, 0.0]))
    assert images[:, 0, 0, 0].tolist() == [0.0, 1.0, 0.0]
    assert losses.tolist() == [1.0, 2.0, 1.0]


def test_more_steps_and_wider_balls_find_worse_images():
    model, (images, labels) = SmoothNet(), random_images(50)

    def worst(epsilon, steps):
        found = perturb(model, images, labels, epsilon=epsilon, step_size=epsilon / 4, steps=steps, random_start=False)
        return losses(model, found, labels).mean()

    assert worst(0.1, 1) < worst(0.1, 8)
    assert worst(0.05, 8) < worst(0.1, 8)


def test_the_start_is_drawn_from_the_whole_ball_by_the_generator_or_given():
    model, (images, labels) = SmoothNet(), random_images(50)
    inside = 0.3 + 0.4 * images

    def start(**draw):
        settings = {"epsilon": 0.1, "step_size": 0.0, "steps": 0, "keep_worst": False}
        return perturb(model, inside, labels, **settings, **draw)

    one, two = (start(generator=torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(one, two)
    moved = (one - inside) / 0.1
    assert moved.min() < -0.99
    assert moved.max() > 0.99
    noise = torch.rand(inside.shape, dtype=torch.float64)
    torch.testing.assert_close(start(noise=noise), inside + 0.1 * (2 * noise - 1))


def test_the_model_is_attacked_in_evaluation_mode_and_left_as_it_was():
    model, (images, labels) = SmoothNet(norm=True), random_images(8)
    model(images).sum().backward()
    before = everything(model)
    settings = {"epsilon": 0.1, "step_size": 0.05, "steps": 3, "random_start": False}
    wanted = []
    handle = model.register_forward_pre_hook(lambda *_: wanted.append(next(model.parameters()).requires_grad))
    with torch.no_grad():
        found = perturb(model, images, labels, **settings)
    assert_untouched(model, before)
    handle.remove()
    assert set(wanted) == {False}, "the gradient of a weight would be computed for nothing"
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(found, perturb(model.eval(), images, labels, **settings))
    assert not images.requires_grad


@pytest.mark.parametrize("wrong", [{"epsilon": -0.1}, {"step_size": -1.0}, {"steps": -1}])
def test_negative_settings_are_refused(wrong):
    settings = {"epsilon": 0.1, "step_size": 0.1, "steps": 1} | wrong
    with pytest.raises(InputError, match="must not be negative"):
        perturb(SmoothNet(), *random_images(2), **settings)
