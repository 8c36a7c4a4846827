"""Conversion of whole networks: inherited values, hooks, shared layers, references, rejected models."""

import copy
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError, InputError, InputTypeError, UnknownNameError
from asrnorm.norms import ASRNorm2d, BatchNorm, NormLayer
from helpers.small_net import small_net, trained


def test_affine_values_and_requires_grad_are_inherited():
    model = trained(small_net())
    weight, bias = model[1].weight.clone(), model[1].bias.clone()
    model[1].weight.requires_grad_(False)
    asrnorm.convert(model, "asr")
    assert torch.equal(model[1].gamma_bias, weight)
    assert torch.equal(model[1].beta_bias, bias)
    assert not model[1].gamma_bias.requires_grad
    assert model[1].beta_bias.requires_grad
    assert model[1].stan_encoder.weight.requires_grad


def test_gates_are_on_where_trained_values_are_inherited_and_off_on_a_fresh_network():
    assert asrnorm.convert(trained(small_net()), "asr")[1].gated_rescale
    assert not asrnorm.convert(small_net(), "asr")[1].gated_rescale
    assert not asrnorm.convert(trained(small_net()), "asr", gated_rescale=False)[1].gated_rescale
    assert asrnorm.convert(small_net(), "asr", gated_rescale=True)[1].gated_rescale


def test_a_zero_initialized_last_gain_is_not_taken_for_training():
    model = small_net()
    nn.init.zeros_(model[1].weight)
    assert not asrnorm.convert(model, "asr")[1].gated_rescale


def test_batch_statistics_and_closed_gates_keep_the_function():
    model = trained(small_net())
    x = torch.randn(4, 3, 12, 12)
    before = model(x)
    options = {"statistics": "batch", "lambda_init": -40.0, "gate_init": -40.0}
    torch.testing.assert_close(asrnorm.convert(model, "asr", **options)(x), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("norm", ["bn", "bn_test", "dsbn", "sn", "bin"])
def test_running_statistics_are_inherited_by_norms_that_have_them(norm):
    model = trained(small_net())
    mean = model[1].running_mean.clone()
    asrnorm.convert(model, norm)
    assert torch.equal(next(b for name, b in model[1].named_buffers() if name.endswith("running_mean")), mean)
    if norm in ("bn", "dsbn"):
        fresh = trained(small_net())
        assert model[1](torch.ones(1, 8, 2, 2)).shape == fresh[1](torch.ones(1, 8, 2, 2)).shape


def test_eps_and_momentum_are_inherited_unless_given():
    model = nn.Sequential(nn.BatchNorm2d(8, eps=1e-3, momentum=0.01))
    assert asrnorm.convert(copy.deepcopy(model), "asr")[0].eps == 1e-3
    assert asrnorm.convert(copy.deepcopy(model), "bin")[0].momentum == 0.01
    assert asrnorm.convert(copy.deepcopy(model), "asr", eps=1e-6)[0].eps == 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtype_and_training_flag_are_kept(dtype):
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)).to(dtype)
    model[1].eval()
    asrnorm.convert(model, "asr")
    assert not model[1].training
    assert model[0].training
    assert all(p.dtype == dtype for p in model[1].parameters())


def test_device_is_kept_even_where_no_value_can_be_read():
    with torch.device("meta"):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8))
    asrnorm.convert(model, "asr")
    assert all(p.is_meta for p in model.parameters())


def test_hooks_survive_and_their_handles_still_remove_them():
    model, seen = small_net(), []
    handle = model[1].register_forward_hook(lambda module, inputs, output: seen.append(type(module).__name__))
    model[1].register_forward_pre_hook(lambda module, inputs: seen.append("pre"))
    asrnorm.convert(model, "asr")
    model[:5](torch.randn(2, 3, 12, 12))
    assert seen == ["pre", "ASRNorm2d"]
    handle.remove()
    model[:5](torch.randn(2, 3, 12, 12))
    assert seen == ["pre", "ASRNorm2d", "pre"]
    asrnorm.revert(model)
    model[:5](torch.randn(2, 3, 12, 12))
    assert seen[-1] == "pre"


def test_batchnorm1d_is_left_alone_and_listed_unless_asked_for():
    model = asrnorm.convert(trained(small_net()), "asr")
    summary = asrnorm.conversion_summary(model)
    assert isinstance(model[7], nn.BatchNorm1d)
    assert [row[0] for row in summary.left] == ["7"]
    assert "single value" in summary.left[0][2]
    for choice in ({"kinds": ("batch", "batch1d")}, {"layers": ["7"]}, {"layers": lambda name, _: name == "7"}):
        asked = asrnorm.convert(trained(small_net()), "asr", **choice)
        assert isinstance(asked[7], ASRNorm2d)
        assert torch.isfinite(asked(torch.randn(2, 3, 12, 12))).all()


def test_groupnorm_on_request():
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8))
    with pytest.raises(ConversionError, match=r"add kinds=\['group'\]"):
        asrnorm.convert(model, "asr")
    assert isinstance(asrnorm.convert(model, "asr", kinds=("group",))[1], ASRNorm2d)


def test_a_shared_layer_stays_shared():
    shared = nn.BatchNorm2d(8)
    model = nn.ModuleDict({"a": nn.Sequential(shared), "b": nn.Sequential(nn.ReLU(), shared)})
    asrnorm.convert(model, "asr")
    assert model["a"][0] is model["b"][1]
    assert isinstance(model["a"][0], ASRNorm2d)
    assert asrnorm.conversion_summary(model).converted[0][0] == "a.0 = b.1"
    asrnorm.revert(model)
    assert model["a"][0] is model["b"][1] is shared


def test_choosing_half_of_a_shared_layer_is_refused():
    shared = nn.BatchNorm2d(8)
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared))
    with pytest.raises(ConversionError, match=r"0\.0, 1\.0"):
        asrnorm.convert(model, "asr", layers="0.*")
    assert model[0][0] is shared


def test_tied_parameters_are_refused():
    model = nn.Sequential(nn.BatchNorm2d(8), nn.BatchNorm2d(8))
    model[1].weight = model[0].weight
    with pytest.raises(ConversionError):
        asrnorm.convert(model, "asr")


def test_a_norm_alone_is_converted_through_the_returned_value():
    layer = nn.BatchNorm2d(8)
    new = asrnorm.convert(layer, "asr")
    assert isinstance(new, ASRNorm2d)
    assert len(asrnorm.conversion_summary(new).converted) == 1
    assert asrnorm.revert(new) is layer


def test_a_compiled_model_is_refused_with_the_way_out():
    with pytest.raises(ConversionError, match="_orig_mod"):
        asrnorm.convert(torch.compile(small_net()), "asr")
    model = small_net()
    model[0].compile()
    with pytest.raises(ConversionError):
        asrnorm.convert(model, "asr")


def test_a_wrapped_model_is_refused_with_the_way_out():
    with pytest.raises(ConversionError, match="DataParallel"):
        asrnorm.convert(nn.DataParallel(small_net()), "asr")


def test_a_distributed_model_is_refused_and_does_not_see_the_originals():
    command = [sys.executable, str(Path(__file__).parents[2] / "helpers" / "distributed_conversion.py")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    parameters = list(asrnorm.convert(small_net(), "asr", gated_rescale=True).parameters())
    assert child.stdout == f"refused twice, {len(parameters)} gradients"


def test_an_error_while_building_leaves_the_model_as_it_was():
    model = small_net()
    layers = list(model)

    def fails_at_sixteen(num_features, **factory):
        if num_features == 16:
            raise RuntimeError("no memory")
        return BatchNorm(num_features, **factory)

    with pytest.raises(RuntimeError, match="no memory"):
        asrnorm.convert(model, fails_at_sixteen)
    assert list(model) == layers


def test_a_factory_of_the_users_own():
    model = asrnorm.convert(small_net(), lambda n, **factory: nn.GroupNorm(4, n, **factory))
    assert isinstance(model[1], nn.GroupNorm)
    assert type(asrnorm.revert(model)[1]) is nn.BatchNorm2d


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'asr'"):
        asrnorm.convert(small_net(), "asrr")
    with pytest.raises(UnknownNameError, match="did you mean 'stan_ratio'"):
        asrnorm.convert(small_net(), "asr", stan_ration=4)
    with pytest.raises(UnknownNameError, match="did you mean 'batch'"):
        asrnorm.convert(small_net(), "asr", kinds=("bathc",))
    with pytest.raises(InputTypeError):
        asrnorm.convert("resnet18", "asr")


@pytest.mark.parametrize("momentum", [None, 0.01])
@pytest.mark.parametrize(("norm", "options"), [("bin", {}), ("bn", {}), ("asr", {"statistics": "batch"})])
def test_the_momentum_is_inherited(momentum, norm, options):
    model = nn.Sequential(nn.BatchNorm2d(8, momentum=momentum))
    assert asrnorm.convert(model, norm, **options)[0].momentum == momentum
    if norm != "asr":
        model = nn.Sequential(nn.BatchNorm2d(8, momentum=momentum))
        assert asrnorm.convert(model, norm, momentum=0.5)[0].momentum == 0.5


def test_a_class_is_converted_to_as_its_name_is():
    torch.manual_seed(0)
    model = trained(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=1e-3)))
    by_class = asrnorm.convert(copy.deepcopy(model), ASRNorm2d)[1]
    by_name = asrnorm.convert(model, "asr")[1]
    assert by_class.gated_rescale
    assert by_class.eps == 1e-3
    assert by_class.extra_repr() == by_name.extra_repr()


def test_a_foreign_norm_takes_the_affine_values_too():
    model = trained(small_net())
    weight, bias = model[1].weight.clone(), model[1].bias.clone()
    model[1].bias.requires_grad_(False)
    asrnorm.convert(model, lambda c, device, dtype: nn.GroupNorm(4, c, device=device, dtype=dtype), layers="1")
    assert torch.equal(model[1].weight, weight)
    assert torch.equal(model[1].bias, bias)
    assert not model[1].bias.requires_grad
    assert "affine values of 1 layer are not used" not in str(asrnorm.conversion_summary(model))


def test_no_norm_in_the_place_of_one_leaves_its_input_to_others():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.act, self.conv = nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 1)

        def forward(self, x):
            return x + self.conv(self.act(self.norm(x)))

    block, x = asrnorm.convert(Block(), "none"), torch.randn(2, 8, 4, 4)
    before = x.clone()
    torch.testing.assert_close(block(x), before + block.conv(before.relu()))
    torch.testing.assert_close(x, before, rtol=0, atol=0)


def test_arguments_of_another_type_are_rejected():
    with pytest.raises(InputTypeError):
        asrnorm.convert(nn.Sequential(nn.BatchNorm2d(4)), None)
    with pytest.raises(InputTypeError):
        asrnorm.convert(3, "asr")
    with pytest.raises(InputTypeError):
        asrnorm.revert(3)


def test_an_empty_choice_and_a_layer_of_another_kind_are_rejected():
    with pytest.raises(ConversionError):
        asrnorm.convert(nn.Sequential(nn.BatchNorm2d(4)), "asr", layers=[])
    with pytest.raises(ConversionError):
        asrnorm.convert(nn.LayerNorm(4), "asr")


def test_the_number_of_groups_is_inherited_unless_given():
    model = nn.Sequential(nn.GroupNorm(2, 8))
    assert asrnorm.convert(copy.deepcopy(model), "gn", layers=["0"])[0].num_groups == 2
    assert asrnorm.convert(copy.deepcopy(model), "gn", layers=["0"], num_groups=4)[0].num_groups == 4
    assert asrnorm.convert(nn.Sequential(nn.BatchNorm2d(64)), "gn", layers="all")[0].num_groups == 32


def test_a_model_compiled_in_place_is_refused_with_its_own_way_out():
    model = small_net()
    model.compile()
    with pytest.raises(ConversionError, match=r"copy\.deepcopy"):
        asrnorm.convert(model, "asr")
    assert asrnorm.conversion_summary(asrnorm.convert(copy.deepcopy(model), "asr")).converted


@pytest.mark.parametrize("norm", ["asr", "in", "bn", "dsbn", "none"])
@pytest.mark.parametrize("kind", [nn.InstanceNorm2d, nn.BatchNorm2d])
def test_a_single_image_is_not_taken_for_a_batch_where_its_sides_fit(kind, norm):
    model = asrnorm.convert(nn.Sequential(kind(4)), norm, kinds=("batch", "instance"))
    image = torch.randn(4, 4, 6)
    with pytest.raises(InputError, match="unsqueeze"):
        model(image)
    assert model(image[None]).shape == (1, 4, 4, 6)
    assert copy.deepcopy(model)[0].input_rank == 4


def test_a_layer_that_took_any_number_of_axes_still_does():
    model = asrnorm.convert(nn.Sequential(nn.GroupNorm(2, 4)), "asr", kinds=("group",))
    assert model(torch.randn(2, 4, 6)).shape == (2, 4, 6)


def test_the_axes_are_asked_of_the_layer_alone_and_kept_by_the_next():
    class Flat(NormLayer):
        def __init__(self, num_features, **factory):
            super().__init__()
            self.num_features = num_features
            self.inner = asrnorm.create_norm("gn", num_features, num_groups=2, **factory)

        def forward(self, x):
            return self.inner(x.flatten(2)).view_as(x)

    x = torch.randn(2, 8, 4, 4)
    assert asrnorm.convert(nn.Sequential(nn.BatchNorm2d(8)), Flat)(x).shape == x.shape
    twice = asrnorm.convert(asrnorm.convert(nn.Sequential(nn.BatchNorm2d(8)), "bn", layers="all"), "asr", layers="all")
    assert twice[0].input_rank == 4


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
