"""AdversarialDropout against slopes by hand."""

import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.methods import Batch
from asrnorm.methods.adversarial_dropout import find_mask
from helpers.smooth_net import SmoothNet, random_images


def test_the_loss_drops_what_helps_most():
    (images, labels), model = random_images(7), SmoothNet(width=10)
    embedding = model.embed(images)
    total = 0.0
    for vector, label in zip(embedding, labels, strict=True):
        plain = -model.classify(vector).log_softmax(0)[label]
        # d CE / d m_c = e_c (W^T (p - y))_c
        wrong = model.classify(vector).softmax(0) - torch.eye(4, dtype=torch.float64)[label]
        slope = vector * (model.last.weight.T @ wrong)
        mask = torch.ones(10, dtype=torch.float64)
        for channel in slope.argsort()[:3].tolist():  # int(10 * .35)
            mask[channel] = 0.0 if slope[channel] < 0 else 1.0
        masked = -model.classify(vector * mask * 10 / mask.sum()).log_softmax(0)[label]
        total += (plain + 0.5 * masked) / 7
    method = asrnorm.create_method("adversarial_dropout", delta=0.35, dropout_weight=0.5)
    torch.testing.assert_close(method.loss(model, Batch(images, labels)), total, rtol=1e-10, atol=0)


def test_entries_that_do_not_help_and_ties_are_kept():
    assert find_mask(torch.tensor([[0.0, 1.0, 2.0, 0.0]]), 0.5).tolist() == [[1.0] * 4]
    assert find_mask(torch.tensor([[-1.0, -1.0, -1.0, -1.0]]), 0.5).tolist() == [[1.0] * 4]
    assert find_mask(torch.tensor([[-1.0, 5.0, 3.0]]), 0.7).tolist() == [[0.0, 1.5, 1.5]]
    assert find_mask(torch.tensor([[-1.0, -2.0]]), 0.4).tolist() == [[1.0, 1.0]]


def test_the_mask_is_a_constant_and_the_network_stays_in_its_mode():
    (images, labels), model = random_images(4), SmoothNet(norm=True)
    method = asrnorm.create_method("adversarial_dropout")
    method.loss(model, Batch(images, labels)).backward()
    assert all(module.training for module in model.modules())
    assert model.last.weight.grad is not None


@pytest.mark.parametrize("option", [{"delta": 1.0}, {"dropout_weight": -1.0}])
def test_numbers_out_of_range_are_refused(option):
    with pytest.raises(InputError, match=f"adversarial_dropout: {next(iter(option))} must be "):
        asrnorm.create_method("adversarial_dropout", **option)
