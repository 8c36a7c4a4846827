"""`load_state_dict` of a converted network explains a state dict of another conversion, and is otherwise PyTorch's."""

import copy
import pickle
import re

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import StateMismatchError
from helpers.small_net import small_net, trained

X = torch.randn(4, 3, 12, 12)


def net():
    return trained(small_net())


def message(model, state):
    with pytest.raises(StateMismatchError) as caught:
        model.load_state_dict(state)
    assert isinstance(caught.value, RuntimeError)  # what load_state_dict raises
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("norm", "options"),
    [
        ("asr", {"layers": "first", "gated_rescale": True}),
        ("asr", {"layers": ["4"], "gated_rescale": False}),
        ("asr", {"layers": "all", "gated_rescale": False}),
        ("ilm", {"layers": "all"}),
    ],
)
def test_the_call_that_is_named_gives_a_network_that_takes_the_state_dict(norm, options):
    state = asrnorm.convert(net(), norm, **options).state_dict()
    told = message(asrnorm.convert(net(), "asr"), state)
    call = re.search(r"asrnorm\.convert\(net, .*\)", told).group()
    eval(call, {"asrnorm": asrnorm, "net": (matching := net())})
    matching.load_state_dict(state)


def test_no_call_is_named_where_several_norms_have_such_tensors():
    told = message(asrnorm.convert(net(), "asr"), asrnorm.convert(net(), "in", layers="first").state_dict())
    assert "asrnorm.convert" not in told
    assert "asrnorm.save" in told


def test_the_state_dict_of_the_plain_network_is_recognized():
    state = net().state_dict()
    told = message(asrnorm.convert(net(), "asr"), state)
    assert "before its conversion" in told
    assert "revert" in told


def test_a_matching_state_dict_loads_as_ever_and_others_are_left_to_torch():
    model = asrnorm.convert(net(), "asr")
    other = asrnorm.convert(net(), "asr")
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(X), model(X))
    state = model.state_dict()
    del state["0.weight"]
    with pytest.raises(RuntimeError, match="Missing key") as caught:  # not only norms differ
        other.load_state_dict(state)
    assert not isinstance(caught.value, StateMismatchError)
    found = other.load_state_dict(net().state_dict(), strict=False)
    assert "1.weight" in found.unexpected_keys


def test_state_dicts_with_and_without_limits_load():
    model = asrnorm.convert(net(), "asr")
    plain = copy.deepcopy(model.state_dict())
    asrnorm.confine(model, [X])
    confined = copy.deepcopy(model.state_dict())
    model.load_state_dict(plain)
    assert model[1].limits is None
    model.load_state_dict(confined)
    assert model[1].limits is not None


def test_copies_and_wrapped_models_explain_too():
    model = asrnorm.convert(net(), "asr")
    other = asrnorm.convert(net(), "asr", layers="first").state_dict()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied.load_state_dict(model.state_dict())
        message(copied, other)
        assert not asrnorm.revert(copied)._load_state_dict_pre_hooks
    for wrapped, prefix in ((nn.DataParallel(model), "module."), (torch.compile(model), "_orig_mod.")):
        wrapped.load_state_dict(wrapped.state_dict())
        message(wrapped, {f"{prefix}{key}": value for key, value in other.items()})
    torch.testing.assert_close(torch.compile(model, backend="eager")(X), model(X))


def test_the_hook_goes_with_revert_and_is_there_once():
    model = net()
    asrnorm.convert(model, "asr", layers="first")
    asrnorm.convert(model, "asr", layers="4")
    assert len(model._load_state_dict_pre_hooks) == 1
    asrnorm.revert(model)
    assert not model._load_state_dict_pre_hooks
    model.load_state_dict(net().state_dict())
