"""The comparison of a file with its model can fail."""

import math

import pytest
import torch
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.exporting.export import Subject, relative_error, verify


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


class Cancelling(nn.Module):
    """Mean color, with the rounding errors of numbers a thousand times as large: some 5e-5 of a logit."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 2, bias=False)
        nn.init.constant_(self.linear.weight, 1 / 48)

    def forward(self, images):
        return (self.linear(images.flatten(1)) + 1000) - 1000


def test_a_model_that_rounds_much_lets_a_file_be_off_by_as_little_more():
    model = Cancelling().eval()
    subject = Subject(run=None, model=model, size=(4, 4), batch=None)
    assert 1e-5 < verify(lambda images: model(images) * (1 + 2e-5), subject, "file").tolerance < 5e-4
    with pytest.raises(InputError, match="file: its logits are off by"):
        verify(lambda images: model(images) * (1 + 2e-3), subject, "file")


def test_what_is_off_by_more_than_rounding_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 2, bias=False)).eval()
    nn.init.constant_(model[1].weight, 1 / 48)
    subject = Subject(run=None, model=model, size=(4, 4), batch=None)
    verdict = verify(lambda images: model(images) * (1 + 3e-6), subject, "file")
    assert (verdict.tolerance, verdict.batches) == (1e-5, (1, 3, 8))
    assert verdict.relative_error == pytest.approx(3e-6, rel=0.2)
    with pytest.raises(InputError, match=r"1\.0e-05 would be rounding"):
        verify(lambda images: model(images) * (1 + 3e-5), subject, "file")
