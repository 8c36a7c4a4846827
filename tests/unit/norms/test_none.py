"""No norm: the input as it is, or a copy where it stands for a norm."""

import pytest
import torch

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.norms import NoNorm


def test_it_gives_its_input_or_a_copy_of_it():
    norm, x = NoNorm(3), torch.randn(2, 3, 4, 4)
    assert norm(x) is x
    norm.copies = True
    torch.testing.assert_close(norm(x), x, rtol=0, atol=0)
    assert norm(x) is not x


def test_the_gradient_of_a_copy_is_that_of_the_input():
    norm, x = NoNorm(3), torch.randn(2, 3, 4, 4, requires_grad=True)
    norm.copies = True
    (3 * norm(x)).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


def test_it_has_nothing_to_learn_and_still_looks_at_its_input():
    norm = asrnorm.create_norm("none", 3)
    assert list(norm.parameters()) == list(norm.buffers()) == []
    with pytest.raises(InputError, match="expected 3 channels"):
        norm(torch.zeros(2, 4, 4, 4))
