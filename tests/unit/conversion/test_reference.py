"""Layers held outside the registry: the ones that run are the ones that were converted."""

from collections import namedtuple

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.norms import ASRNorm2d

Pair = namedtuple("Pair", ["norm", "other"])
FORMS = {
    "list": lambda norms: list(norms),
    "tuple": lambda norms: tuple(norms),
    "dict": lambda norms: {"a": norms[0], "b": norms[1]},
    "nested": lambda norms: {"all": [norms[:1], {"rest": (norms[1],)}]},
    "named tuples": lambda norms: [Pair(norms[0], 3), Pair(norms[1], "x")],
}


def flatten(held):
    if isinstance(held, nn.Module):
        return [held]
    parts = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
    return [norm for part in parts for norm in flatten(part)]


class ByList(nn.Module):
    """Registers its norms one by one and calls them through a collection of its own."""

    def __init__(self, form):
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.held = form([self.first, self.second])

    def forward(self, x):
        for norm in flatten(self.held):
            x = norm(x)
        return x


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_norms_that_run_through_a_collection_are_exchanged_and_put_back(form):
    model = ByList(form)
    before = flatten(model.held)
    asrnorm.convert(model, "asr", layers="all")
    assert [type(norm) for norm in flatten(model.held)] == [ASRNorm2d, ASRNorm2d]
    assert flatten(model.held) == [model.first, model.second]
    model(torch.rand(2, 3, 4, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    asrnorm.revert(model)
    assert flatten(model.held) == before == [model.first, model.second]


def test_a_collection_that_holds_itself_and_other_things_does_no_harm():
    model = ByList(list)
    model.held.append(model.held)
    model.words = {"name": "x", 3: (1, 2)}
    words = model.words
    asrnorm.convert(model, "in", layers="all")
    assert model.held[0] is model.first
    assert model.held[2] is model.held
    assert model.words is words
