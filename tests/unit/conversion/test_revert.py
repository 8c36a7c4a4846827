"""Reverting, converting more than once, and copies of converted models."""

import copy
import pickle

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError
from asrnorm.norms import ASRNorm2d, InstanceNorm
from helpers.small_net import small_net, trained


def test_revert_gives_back_the_same_objects_and_the_same_function():
    model = trained(small_net())
    x = torch.randn(4, 3, 12, 12)
    before, norms = model(x), [model[1], model[4]]
    state = copy.deepcopy(model.state_dict())
    asrnorm.convert(model, "asr")
    assert isinstance(model[1], ASRNorm2d)
    assert not torch.allclose(model(x), before)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()(x).sum().backward()
    optimizer.step()
    for name in ("0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"):
        state[name] = model.state_dict()[name].clone()
    assert asrnorm.revert(model) is model
    assert model[1] is norms[0]
    assert model[4] is norms[1]
    fresh = trained(small_net(), x)
    fresh.load_state_dict({**state, **{k: v for k, v in model.state_dict().items() if k.startswith("7.")}})
    assert torch.equal(model.eval()(x), fresh.eval()(x))


def test_revert_without_training_is_exact():
    model = trained(small_net())
    x = torch.randn(4, 3, 12, 12)
    before = model(x)
    assert torch.equal(asrnorm.revert(asrnorm.convert(model, "asr"))(x), before)


def test_originals_are_no_part_of_the_converted_model():
    model = trained(small_net())
    originals = {id(p) for layer in (model[1], model[4]) for p in (*layer.parameters(), *layer.buffers())}
    asrnorm.convert(model, "asr")
    assert not originals & {id(t) for t in (*model.parameters(), *model.buffers())}
    assert not any("original" in key or "running" in key for key in model.state_dict() if not key.startswith("7."))
    assert not any(type(m) is nn.BatchNorm2d for m in model.modules())


def test_every_norm_can_be_converted_to_and_reverted():
    for name in asrnorm.list_norms():
        model = trained(small_net())
        x = torch.randn(4, 3, 12, 12)
        before = model(x)
        asrnorm.convert(model, name)
        assert torch.isfinite(model(x)).all(), name
        assert torch.equal(asrnorm.revert(model)(x), before), name


def test_revert_follows_a_cast_and_a_change_of_mode():
    model = asrnorm.convert(trained(small_net()), "asr")
    model.double().train()
    asrnorm.revert(model)
    assert model[1].weight.dtype == torch.float64
    assert model[1].training


def test_a_second_conversion_of_the_same_layers_is_refused():
    model = asrnorm.convert(small_net(), "asr")
    with pytest.raises(ConversionError, match=r"asrnorm\.revert\(model\)"):
        asrnorm.convert(model, "asr")


def test_a_second_conversion_of_other_layers_adds_to_the_first():
    model = asrnorm.convert(small_net(), "asr", layers="first")
    asrnorm.convert(model, "in", layers="4")
    assert isinstance(model[1], ASRNorm2d)
    assert isinstance(model[4], InstanceNorm)
    asrnorm.revert(model)
    assert type(model[1]) is type(model[4]) is nn.BatchNorm2d


def test_conversions_on_top_of_each_other_revert_to_the_first_original():
    model = small_net()
    original = model[1]
    for norm in ("bn_test", "in", "asr"):
        asrnorm.convert(model, norm, layers="1", kinds=("batch", "instance"))
    asrnorm.revert(model)
    assert model[1] is original


def test_revert_where_nothing_was_converted_says_what_to_do():
    with pytest.raises(ConversionError, match="build the original model again"):
        asrnorm.revert(asrnorm.create_model("wrn_16_4", norm="asr"))


def test_copies_and_pickles_of_a_converted_model_can_be_reverted():
    model = trained(small_net())
    x = torch.randn(4, 3, 12, 12)
    before = model(x)
    asrnorm.convert(model, "asr")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x), model(x))
        assert torch.equal(asrnorm.revert(other)(x), before)
    assert isinstance(model[1], ASRNorm2d)


def test_weights_of_a_converted_model_load_into_another_that_was_converted_alike():
    x = torch.randn(4, 3, 12, 12)
    first, second = trained(small_net()), trained(small_net())
    asrnorm.convert(first, "asr")
    asrnorm.convert(second, "asr")
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert type(asrnorm.revert(second)[1]) is nn.BatchNorm2d


def test_the_summary_of_a_part_goes_with_the_whole():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.ReLU())
    asrnorm.convert(model[0], "asr")
    assert asrnorm.conversion_summary(model[0]).converted
    asrnorm.revert(model)
    with pytest.raises(ConversionError):
        asrnorm.conversion_summary(model[0])


@pytest.mark.parametrize("first", ["bn", "none", "in"])
@pytest.mark.parametrize("second", ["asr", "none", None])
def test_a_cast_is_followed_whichever_layers_stood_there_meanwhile(first, second):
    model = asrnorm.convert(trained(small_net()), first, layers=["1", "4"])
    model.double()
    if second is not None and first == "bn":
        asrnorm.convert(model, second, layers=["1", "4"])
    asrnorm.revert(model)
    assert {value.dtype for value in model[1].state_dict().values() if value.is_floating_point()} == {torch.float64}
    assert model(torch.rand(8, 3, 12, 12, dtype=torch.float64)).dtype == torch.float64


def test_without_a_cast_a_norm_in_float32_stays_so_in_a_half_precision_model():
    model = trained(small_net()).to(torch.bfloat16)
    model[1].float()
    asrnorm.revert(asrnorm.convert(model, "none", layers=["4"]))
    assert model[4].weight.dtype == torch.bfloat16
    asrnorm.revert(asrnorm.convert(model, "asr", layers=["1"]))
    assert model[1].weight.dtype == torch.float32


def test_the_device_is_followed_where_the_new_layer_has_no_values():
    model = asrnorm.convert(trained(small_net()), "none", layers=["1"]).to("meta")
    assert asrnorm.revert(model)[1].weight.is_meta


def test_originals_that_never_had_values_are_refused_and_nothing_changes():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    asrnorm.convert(model, "asr", layers="all").to_empty(device="cpu")
    with pytest.raises(ConversionError):
        asrnorm.revert(model)
    assert isinstance(model[1], ASRNorm2d)


def test_a_backward_hook_of_the_new_layer_stays_with_the_place():
    model = asrnorm.convert(trained(small_net()), "asr")
    calls = []
    model[1].register_full_backward_hook(lambda *_: calls.append(1))
    asrnorm.revert(model).train()
    model(torch.rand(4, 3, 12, 12)).sum().backward()
    assert calls == [1]
