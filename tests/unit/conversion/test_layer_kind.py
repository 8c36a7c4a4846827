"""Recognized norm layers, including those of libraries that are not installed here."""

import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import asrnorm
from asrnorm.conversion.layer_kind import NormSpec, Unsupported, recognize
from asrnorm.conversion.replace import NormAct
from asrnorm.core.errors import ConversionError
from asrnorm.norms import ASRNorm2d, BatchNorm
from helpers.toy_timm import BatchNormAct2d, foreign


class _Frozen(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.eps = 1e-5
        self.register_buffer("weight", torch.rand(num_features) + 0.5)
        self.register_buffer("bias", torch.randn(num_features))
        self.register_buffer("running_mean", torch.randn(num_features))
        self.register_buffer("running_var", torch.rand(num_features) + 0.5)


FrozenBatchNorm2d = foreign(_Frozen, "FrozenBatchNorm2d", "torchvision.ops.misc")
LayerNorm2d = foreign(nn.LayerNorm, "LayerNorm2d", "timm.layers.norm")


class ConvNextLayerNorm(nn.LayerNorm):
    """As Hugging Face has it, in both layouts."""

    def __init__(self, num_features, *, data_format="channels_first", factor=1.0):
        super().__init__(num_features, eps=1e-6)
        self.data_format, self.factor = data_format, factor
        nn.init.uniform_(self.weight)

    def forward(self, x):
        if self.data_format == "channels_first":
            return self.factor * super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return super().forward(x)


class ChannelNorm(nn.Module):
    """As the authors of ConvNeXt have it: no LayerNorm by class."""

    def __init__(self, num_features):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.rand(num_features)), nn.Parameter(torch.rand(num_features))
        self.eps, self.data_format = 1e-6, "channels_first"

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        scale = ((x - mean).square().mean(1, keepdim=True) + self.eps).rsqrt()
        return self.weight[:, None, None] * (x - mean) * scale + self.bias[:, None, None]


class OwnLayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (nn.BatchNorm1d(8), "batch1d"),
        (nn.BatchNorm2d(8), "batch"),
        (nn.BatchNorm3d(8), "batch"),
        (nn.SyncBatchNorm(8), "batch"),
        (nn.BatchNorm2d(8, affine=False), "batch"),
        (nn.BatchNorm2d(8, track_running_stats=False), "batch"),
        (nn.GroupNorm(2, 8), "group"),
        (nn.InstanceNorm2d(8), "instance"),
        (BatchNormAct2d(8), "batch"),
        (FrozenBatchNorm2d(8), "batch"),
        (LayerNorm2d(8), "layer2d"),
        (ConvNextLayerNorm(8), "layer2d"),
        (ConvNextLayerNorm(8).to(torch.bfloat16), "layer2d"),
        (ConvNextLayerNorm(8).to("meta"), "layer2d"),
        (ChannelNorm(8), "layer2d"),
        (OwnLayerNorm2d(8), "layer2d"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_known_layers_are_recognized_and_converted(layer, kind):
    spec = recognize(layer)
    assert isinstance(spec, NormSpec)
    assert (spec.kind, spec.num_features) == (kind, 8)
    model = asrnorm.convert(nn.Sequential(layer), "asr", kinds=(kind,))
    shape = (2, 8, 4, 4, 4) if isinstance(layer, nn.BatchNorm3d) else (2, 8, 4, 4)
    like = next(model.parameters())
    assert model(torch.randn(shape).to(like)).shape == shape
    assert asrnorm.revert(model)[0] is layer


def test_a_layer_norm_of_channels_keeps_its_values_and_its_own_equation_through_gn():
    layer = ConvNextLayerNorm(8)
    images = torch.randn(2, 8, 1, 1)  # one position: group norm of one group is the norm of its channels
    expected = layer(images)
    model = asrnorm.convert(nn.Sequential(layer), "gn", kinds=("layer2d",), num_groups=1)
    torch.testing.assert_close(model(images), expected)


def test_the_activation_of_a_norm_with_one_is_kept():
    model = nn.Sequential(BatchNormAct2d(8))
    asrnorm.convert(model, "asr")
    assert isinstance(model[0], NormAct)
    assert model(torch.randn(2, 8, 4, 4)).min() == 0
    assert "ASRNorm2d(8) + ReLU" in str(asrnorm.conversion_summary(model))
    with pytest.raises(ConversionError):
        asrnorm.convert(model, "asr")


def test_an_activation_with_parameters_is_copied_so_that_the_original_keeps_its_state():
    layer = BatchNormAct2d(8, act=nn.PReLU(8))
    model = asrnorm.convert(nn.Sequential(layer), "asr")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = layer.act.weight.clone()
    model(torch.randn(2, 8, 4, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].act.weight, before)
    assert torch.equal(asrnorm.revert(model)[0].act.weight, before)


def test_a_frozen_batch_norm_hands_its_buffers_on_and_stays_frozen():
    layer = FrozenBatchNorm2d(8)
    model = asrnorm.convert(nn.Sequential(layer), "asr")
    assert torch.equal(model[0].gamma_bias, layer.weight)
    assert not model[0].gamma_bias.requires_grad
    assert model[0].gated_rescale
    assert any("stay frozen" in note for note in asrnorm.conversion_summary(model).notes)


def test_batch_norm_3d_works_on_volumes():
    model = asrnorm.convert(nn.Sequential(nn.BatchNorm3d(8)), "asr")
    assert model(torch.randn(2, 8, 3, 4, 5)).shape == (2, 8, 3, 4, 5)


class _Gentle(nn.BatchNorm2d):
    """Other defaults, and what a norm may have beside them, unused by its forward."""

    def __init__(self, num_features):
        super().__init__(num_features, eps=1e-3, momentum=0.01)
        self.act = nn.ReLU()

    def extra_repr(self):
        return "gentle"

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        super()._load_from_state_dict(state_dict, prefix, *rest)


class _GentleGroups(nn.GroupNorm):
    def __init__(self, num_features):
        super().__init__(2, num_features)


class _GentleAct(BatchNormAct2d):
    pass


class _GentleOwn(BatchNorm):
    pass


class _Lasting(nn.LayerNorm):
    pass


class _Doubled(nn.BatchNorm2d):
    def forward(self, x):
        return 2 * super().forward(x)


class _Doubling:
    def forward(self, x):
        return 2 * super().forward(x)


class _Mixed(_Doubling, _Gentle):
    pass


class _Frozen2d(nn.BatchNorm2d):
    def train(self, mode=True):  # noqa: ARG002
        return super().train(False)


class _Sized(nn.BatchNorm2d):
    def _check_input_dim(self, x):
        assert x.shape[-1] == 4


class _Steady(nn.BatchNorm2d):
    eps = property(lambda self: 1.0 if self.training else 0.1, lambda self, value: None)


class _Called(nn.InstanceNorm2d):
    def __call__(self, x):
        return 2 * super().__call__(x)


@pytest.mark.parametrize(
    ("layer", "kind"),
    [(_Gentle(8), "batch"), (_GentleGroups(8), "group"), (_GentleAct(8), "batch"), (_GentleOwn(8), "batch")],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_subclass_that_computes_what_its_base_does_is_converted_as_that_and_comes_back(layer, kind):
    x = torch.randn(4, 8, 5, 5)
    nn.init.uniform_(layer.weight)
    layer(x)
    model = nn.Sequential(layer).eval()
    before = model(x)
    asrnorm.convert(model, "asr", kinds=(kind,))
    (row,) = asrnorm.conversion_summary(model).converted
    assert row[1] == type(layer).__name__
    new = model[0].norm if isinstance(model[0], NormAct) else model[0]
    assert isinstance(new, ASRNorm2d)
    assert torch.equal(new.gamma_bias, layer.weight)
    assert new.eps == layer.eps
    assert asrnorm.revert(model)[0] is layer
    assert torch.equal(model(x), before)


def test_an_activation_is_kept_where_the_forward_of_the_base_applies_it():
    assert isinstance(asrnorm.convert(_GentleAct(8), "asr"), NormAct)
    assert isinstance(asrnorm.convert(_Gentle(8), "asr"), ASRNorm2d)


def test_a_subclass_that_synchronizes_still_does():
    class Quick(nn.SyncBatchNorm):
        pass

    assert recognize(Quick(8)).is_synchronized
    assert recognize(nn.SyncBatchNorm(8)).is_synchronized


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.LayerNorm(8), "normalizes the last axis"),
        (nn.LazyBatchNorm2d(), "lazy .* run one batch"),
        (_Doubled(8), "subclass of BatchNorm2d that overrides forward, .* asrnorm.create_norm"),
        (_Mixed(8), "subclass of BatchNorm2d that overrides forward,"),
        (_Frozen2d(8), "subclass of BatchNorm2d that overrides train,"),
        (_Sized(8), "subclass of BatchNorm2d that overrides _check_input_dim,"),
        (_Steady(8), "subclass of BatchNorm2d that overrides eps,"),
        (_Called(8), "subclass of InstanceNorm2d that overrides __call__,"),
        (_Lasting(8), "normalizes the last axis"),
        (ConvNextLayerNorm(8, data_format="channels_last"), "normalizes the last axis"),
        (ConvNextLayerNorm(8, factor=2.0), "subclass of LayerNorm that overrides forward"),
        (parametrizations.weight_norm(nn.BatchNorm2d(8), dim=None), "parametrized"),
        (parametrizations.weight_norm(nn.InstanceNorm2d(8, affine=True), dim=None), "parametrized"),
        (nn.InstanceNorm1d(8), "InstanceNorm1d is not a kind that can be converted"),
        (ASRNorm2d(8), "is ASRNorm2d already"),
        (nn.LocalResponseNorm(2), "an unknown norm, torch.nn.modules.normalization.LocalResponseNorm"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_other_norms_are_left_alone_with_the_reason(layer, reason):
    spec = recognize(layer)
    assert isinstance(spec, Unsupported)
    assert re.search(reason, spec.reason)
    model = asrnorm.convert(nn.Sequential(layer, nn.BatchNorm2d(8)), "asr")
    assert model[0] is layer
    assert asrnorm.conversion_summary(model).left[0][2] == spec.reason
    with pytest.raises(ConversionError):
        asrnorm.convert(nn.Sequential(layer), "asr", layers=["0"])


@pytest.mark.parametrize(
    "change",
    [lambda norm: prune.l1_unstructured(norm, "weight", 0.5), nn.utils.weight_norm],
    ids=["pruned", "weight norm"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_a_norm_whose_weight_a_hook_makes_is_left_alone(change):
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    change(model[0])
    asrnorm.convert(model, "asr", layers="all")
    assert isinstance(model[0], nn.BatchNorm2d)
    assert isinstance(model[1], ASRNorm2d)
    assert "make that permanent first" in str(asrnorm.conversion_summary(model))
    assert model(torch.rand(2, 4, 5, 5)).isfinite().all()


def test_one_batch_is_training():
    layer = nn.BatchNorm2d(8)
    assert not recognize(layer).is_trained()
    layer(torch.rand(2, 8, 3, 3))
    assert recognize(layer).is_trained()


def test_a_gain_that_differs_or_a_bias_that_is_not_zero_is_training():
    for change in (lambda layer: layer.weight[0].add_(1), lambda layer: layer.bias[0].add_(1)):
        layer = nn.BatchNorm2d(8, track_running_stats=False)
        assert not recognize(layer).is_trained()
        with torch.no_grad():
            layer.weight.zero_()  # as of the last norm of a block: an initialization
            assert not recognize(layer).is_trained()
            change(layer)
        assert recognize(layer).is_trained()


def uncounted(**options):
    """A layer of a checkpoint from before batches were counted."""
    layer = nn.BatchNorm2d(8, affine=False, **options)
    layer.num_batches_tracked = None
    return layer


@pytest.mark.parametrize(
    "change", [lambda layer: layer.running_mean[0].add_(1), lambda layer: layer.running_var.mul_(2)]
)
def test_running_values_that_are_not_those_of_a_fresh_layer_are_training(change):
    layer = uncounted()
    assert not recognize(layer).is_trained()
    change(layer)
    assert recognize(layer).is_trained()
    model = asrnorm.convert(nn.Sequential(layer), "asr")
    assert model[0].gated_rescale


def test_a_variance_that_starts_eps_below_one_is_no_training():
    layer = uncounted(eps=1e-5)
    layer.running_var.sub_(layer.eps)
    assert not recognize(layer).is_trained()


def test_running_values_without_data_are_no_training():
    assert not recognize(uncounted(device="meta")).is_trained()
    assert not recognize(nn.BatchNorm2d(8, affine=False, track_running_stats=False)).is_trained()


@pytest.mark.parametrize("kind", [nn.BatchNorm2d, type("Own", (nn.BatchNorm2d,), {})])
def test_a_layer_with_a_forward_of_its_own_is_left_alone(kind):
    layer = kind(8)
    layer.forward = lambda x: 0 * x
    spec = recognize(layer)
    assert isinstance(spec, Unsupported)
    assert "overrides forward" in spec.reason
