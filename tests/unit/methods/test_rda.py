import pytest
import torch
import torch.nn.functional as F

from asrnorm.core.errors import InputError
from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple
from asrnorm.methods import RDA, Batch, create_method
from helpers.tiny_classifier import LightRed

LABELS = torch.tensor([0, 1, 0, 1])


def test_a_step_is_cross_entropy_under_one_random_tuple(monkeypatch):
    pixels = torch.randint(0, 256, (4, 3, 4, 4), dtype=torch.uint8)
    drawn = []

    def spy(count, generator, length):
        from asrnorm.data.augment import draw_tuples

        drawn.append(draw_tuples(count, generator, length))
        return drawn[-1]

    monkeypatch.setattr("asrnorm.methods.rsda.draw_tuples", spy)
    model, method = LightRed(), RDA(tuple_length=2)
    loss = method.loss(model, Batch(pixels / 255, LABELS, step=3))
    (ops, levels) = drawn[0]
    assert ops.shape == (1, 2)
    assert torch.equal(loss, F.cross_entropy(model(apply_tuple(pixels, ops[0], levels[0]) / 255), LABELS))


def test_every_step_draws_anew_and_the_same_again():
    images, model = torch.rand(4, 3, 4, 4), LightRed()
    losses = [create_method("rda", seed=1).loss(model, Batch(images, LABELS, s)).item() for s in (*range(20), 7)]
    assert losses[7] == losses[20]
    assert len(set(losses)) > 10
    assert not RDA().is_growing(1000)
    assert RDA().state_dict() == {}
    assert len(RSDA_OPERATIONS) == 10


def test_refuses_an_empty_tuple():
    with pytest.raises(InputError, match="tuple_length must be at least 1"):
        RDA(tuple_length=0)
