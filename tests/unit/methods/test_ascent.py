import os

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.methods.ascent import Ascent, AscentGraph, entropy
from asrnorm.models import create_model
from helpers.smooth_net import CLASSES, SmoothNet, assert_untouched, everything, random_images

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used


def gradient_by_hand(model, x, start, labels, ascent):
    """Gradient of every image's own objective, written out."""
    first, second = model.hidden.weight.detach().numpy(), model.last.weight.detach().numpy()

    def embed(values):
        return np.tanh(values @ first.T + model.hidden.bias.detach().numpy())

    embedding = embed(x)
    logits = embedding @ second.T + model.last.bias.detach().numpy()
    probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    by_logits = probability - np.eye(CLASSES)[labels]
    disorder = -(probability * np.log(probability)).sum(1, keepdims=True)
    by_logits -= ascent.entropy_weight * probability * (np.log(probability) + disorder)
    difference = embedding - embed(start)
    by_cost = 2 * difference / difference.shape[1] if ascent.distance == "mean" else difference
    by_embedding = by_logits @ second - ascent.penalty * by_cost
    return ((1 - embedding**2) * by_embedding) @ first


@pytest.mark.parametrize("distance", ["mean", "half"])
@pytest.mark.parametrize("reduction", ["batch", "sample"])
@pytest.mark.parametrize("entropy_weight", [0.0, 3.0])
def test_plain_steps_are_those_computed_by_hand(distance, reduction, entropy_weight):
    ascent = Ascent(
        penalty=2.0, entropy_weight=entropy_weight, steps=3, lr=0.7, batch=6, distance=distance, reduction=reduction
    )
    model = SmoothNet()
    images, labels = random_images(6)
    start = images.flatten(1).numpy()
    x = start.copy()
    for _ in range(3):  # from the second step on the distance has a gradient too
        x = x + (0.7 / 6 if reduction == "batch" else 0.7) * gradient_by_hand(model, x, start, labels.numpy(), ascent)
    reached = ascent.ascend(model, images, labels)
    np.testing.assert_allclose(reached.flatten(1).numpy(), x, rtol=1e-12, atol=1e-13)
    assert np.abs(x - start).max() > 1e-3


def test_adam_steps_are_those_computed_by_hand():
    ascent = Ascent(steps=3, lr=0.02, optimizer="adam", reduction="sample")
    model = SmoothNet()
    images, labels = random_images(5)
    start = images.flatten(1).numpy()
    x, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, 4):
        gradient = gradient_by_hand(model, x, start, labels.numpy(), ascent)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        x = x + 0.02 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(ascent.ascend(model, images, labels).flatten(1).numpy(), x, rtol=1e-10)


@given(
    seed=st.integers(0, 10_000),
    penalty=st.floats(0, 50),
    entropy_weight=st.floats(0, 20),
    steps=st.integers(1, 5),
    distance=st.sampled_from(["mean", "half"]),
)
def test_a_small_enough_step_never_lowers_the_objective(seed, penalty, entropy_weight, steps, distance):
    ascent = Ascent(
        penalty=penalty, entropy_weight=entropy_weight, steps=steps, lr=1e-3, distance=distance, reduction="sample"
    )
    model = SmoothNet(seed=seed)
    images, labels = random_images(7, seed=seed)
    with torch.no_grad():
        anchor = model.embed(model.features(images))
        before = ascent.objective(model, images, labels, anchor)
        after = ascent.objective(model, ascent.ascend(model, images, labels), labels, anchor)
    assert (after >= before).all()
    assert (after > before).any()


def test_an_image_goes_its_way_whatever_else_is_in_its_batch():
    ascent = Ascent(steps=4, batch=4)
    model, (images, labels) = SmoothNet(), random_images(6)
    together = ascent.ascend(model, images, labels)
    alone = torch.cat([ascent.ascend(model, images[i : i + 1], labels[i : i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-14)


def test_the_entropy_term_raises_the_entropy_and_the_penalty_holds_back():
    model, (images, labels) = SmoothNet(), random_images(20)

    def reached(**settings):
        return Ascent(steps=30, lr=0.2, reduction="sample", **settings).ascend(model, images, labels)

    with torch.no_grad():
        assert entropy(model(reached(entropy_weight=20.0))).mean() > entropy(model(images)).mean() + 0.1
        assert entropy(model(reached(entropy_weight=20.0))).mean() > entropy(model(reached())).mean()
        anchor = model.embed(images)
        moved = [(model.embed(reached(penalty=penalty)) - anchor).norm() for penalty in (0.0, 1.0, 10.0)]
    assert moved[0] > moved[1] > moved[2]


def test_a_bonus_is_added_to_the_objective_and_sees_where_the_ascent_began():
    model, (images, labels) = SmoothNet(), random_images(3)

    def toward_one(x, start):
        assert torch.equal(start, images)
        return 1e3 * x.flatten(1).sum(1)

    ascent = Ascent(steps=2, lr=1e-4, reduction="sample")
    moved = ascent.ascend(model, images, labels, toward_one) - ascent.ascend(model, images, labels)
    torch.testing.assert_close(moved, torch.full_like(moved, 0.2), rtol=1e-2, atol=0)


def test_clipping_and_quantizing_come_at_the_end():
    model, (images, labels) = SmoothNet(), random_images(9)
    settings = {"steps": 5, "lr": 2.0, "reduction": "sample"}
    free = Ascent(**settings).ascend(model, images, labels)
    assert free.min() < 0 or free.max() > 1
    assert torch.equal(Ascent(clip=True, **settings).ascend(model, images, labels), free.clamp(0, 1))
    levels = Ascent(quantize=True, **settings).ascend(model, images, labels)
    assert levels.dtype == torch.uint8
    assert torch.equal(levels.double(), (255 * free.clamp(0, 1)).round())


@pytest.mark.parametrize("frozen", [False, True])
def test_the_ascent_uses_the_model_in_evaluation_mode_and_left_as_it_was(frozen):
    model = SmoothNet(norm=True)
    model.front[0].train(not frozen)
    images, labels = random_images(8)
    model(images).sum().backward()
    before = everything(model)
    wanted = []
    handle = model.front.register_forward_pre_hook(lambda *_: wanted.append(next(model.parameters()).requires_grad))
    with torch.no_grad():  # a grow phase may be called from anywhere
        first = Ascent(steps=3).ascend(model, images, labels)
    assert_untouched(model, before)
    handle.remove()
    assert set(wanted) == {False}, "the gradient of a weight would be computed for nothing"
    assert all(parameter.requires_grad for parameter in model.parameters())
    model.eval()
    assert torch.equal(first, Ascent(steps=3).ascend(model, images, labels))


def test_the_given_images_stay_and_the_model_gives_the_dtype():
    model, (images, labels) = SmoothNet(), random_images(3)
    given_images = images.float()
    copy = given_images.clone()
    assert Ascent(steps=1).ascend(model, given_images, labels).dtype == torch.float64
    assert torch.equal(given_images, copy)


def test_no_images_give_no_images():
    images, labels = random_images(0)
    assert Ascent(quantize=True).ascend(SmoothNet(), images, labels).dtype == torch.uint8


@pytest.mark.parametrize("wrong", [{"distance": "halve"}, {"optimizer": "sdg"}, {"reduction": "mean"}])
def test_a_wrong_word_is_answered_with_the_right_ones(wrong):
    with pytest.raises(UnknownNameError, match="nown"):
        Ascent(**wrong)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch": 0}, {"lr": 0.0}])
def test_sizes_that_make_no_ascent_are_refused(wrong):
    with pytest.raises(InputError):
        Ascent(**wrong)


CUDA = torch.device("cuda", 0)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of operations without a deterministic form
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("norm", ["bn", "asr", "bn_test"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_graph_gives_the_images_of_plain_steps(optimizer, norm, precision, monkeypatch):
    replayed = []
    ascend = AscentGraph.ascend
    monkeypatch.setattr(AscentGraph, "ascend", lambda self, x, y: replayed.append(len(x)) or ascend(self, x, y))
    model = create_model("digits_convnet", norm=norm, channels=(4, 8), hidden=16)
    model.to(CUDA, memory_format=torch.channels_last)
    images, labels = torch.rand(40, 3, 32, 32, device=CUDA), torch.randint(10, (40,), device=CUDA)
    ascent = Ascent(steps=4, lr=0.1, batch=16, optimizer=optimizer, reduction="sample", entropy_weight=1.0)
    before = [value.clone() for value in model.state_dict().values()]
    with torch.autocast("cuda", precision, enabled=precision != torch.float32):
        plain, captured = (ascent.prepare(model, captured=choice) for choice in (False, True))
        for part, own in zip(images.split(16), labels.split(16), strict=True):
            found = captured(part, own)
            assert torch.equal(found, plain(part, own))
            assert not torch.equal(found, part)
    assert replayed == [16, 16]  # the last, of 8, is done without
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), before, strict=True))


@pytest.mark.gpu
def test_a_gpu_takes_more_images_at_once_unless_they_affect_each_other():
    images, ascent = torch.rand(1, 3, 32, 32, device=CUDA), Ascent(batch=32)
    models = {norm: create_model("digits_convnet", norm=norm) for norm in ("bn", "bn_test")}
    assert {norm: ascent.chunk_size(model, images) for norm, model in models.items()} == {"bn": 512, "bn_test": 32}
    assert ascent.chunk_size(models["bn"], images.cpu()) == 32
