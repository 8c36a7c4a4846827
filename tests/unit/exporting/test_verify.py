"""The comparison of a file with its model can fail."""

import math

import pytest
import torch
from torch import nn

from asrnorm.errors import InputError
from asrnorm.exporting.verify import Subject, relative_error, verify


def test_the_error_is_relative_to_the_largest_logit():
    assert relative_error(torch.tensor([[100.0, 1.0]]), torch.tensor([[100.0, 2.0]])) == 0.01


def test_another_shape_is_infinitely_wrong_and_nan_stays_nan():
    assert relative_error(torch.zeros(2, 3), torch.zeros(3, 2)) == math.inf
    assert math.isnan(relative_error(torch.tensor([math.nan]), torch.tensor([1.0])))


def subject_of(model):
    return Subject(run=None, model=model.eval(), size=(4, 4), batch=None)


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 2))


@pytest.mark.parametrize("broken", [(1,), (3,), (8,), (1, 3, 8)])
def test_a_file_that_computes_nan_for_any_batch_is_refused(broken):
    model = net()
    with pytest.raises(InputError, match=r"file: its logits are off by nan"):
        verify(lambda x: model(x) * (math.nan if len(x) in broken else 1.0), subject_of(model), "file")


def test_a_model_that_computes_nan_is_refused():
    model = net()
    with torch.no_grad():
        model[1].weight[0, 0] = math.nan
    with pytest.raises(InputError, match="the model itself computes NaN"):
        verify(model, subject_of(model), "file")
