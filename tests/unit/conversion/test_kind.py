"""Which layers are recognized, among them those of libraries that are not installed here."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import asrnorm
from asrnorm.conversion.kind import Recognized, Unsupported, recognize
from asrnorm.conversion.replace import NormAct
from asrnorm.errors import ConversionError
from asrnorm.norms import ASRNorm2d
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
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_known_layers_are_recognized_and_converted(layer, kind):
    what = recognize(layer)
    assert isinstance(what, Recognized)
    assert (what.kind, what.num_features) == (kind, 8)
    model = asrnorm.convert(nn.Sequential(layer), "asr", kinds=(kind,))
    assert model(torch.randn(2, 8, 4, 4)).shape == (2, 8, 4, 4)
    assert asrnorm.revert(model)[0] is layer


def test_the_activation_of_a_norm_with_one_is_kept():
    model = nn.Sequential(BatchNormAct2d(8))
    asrnorm.convert(model, "asr")
    assert isinstance(model[0], NormAct)
    assert model(torch.randn(2, 8, 4, 4)).min() == 0
    assert "ASRNorm2d(8) + ReLU" in str(asrnorm.conversion_summary(model))
    with pytest.raises(ConversionError, match="converted already"):
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


class _Subclass(nn.BatchNorm2d):
    pass


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.LayerNorm(8), "normalizes the last axis"),
        (nn.LazyBatchNorm2d(), "lazy and not initialized"),
        (_Subclass(8), "an unknown subclass of BatchNorm2d"),
        (parametrizations.weight_norm(nn.BatchNorm2d(8), dim=None), "parametrized"),
        (nn.InstanceNorm1d(8), "InstanceNorm1d is not a kind that can be converted"),
        (ASRNorm2d(8), "is ASRNorm2d already"),
        (nn.LocalResponseNorm(2), "an unknown norm, torch.nn.modules.normalization.LocalResponseNorm"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_other_norms_are_left_alone_with_the_reason(layer, reason):
    what = recognize(layer)
    assert isinstance(what, Unsupported)
    assert reason in what.reason
    model = asrnorm.convert(nn.Sequential(layer, nn.BatchNorm2d(8)), "asr")
    assert model[0] is layer
    assert reason in asrnorm.conversion_summary(model).left[0][2]
    with pytest.raises(ConversionError, match=r"0 .* cannot be converted: "):
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
