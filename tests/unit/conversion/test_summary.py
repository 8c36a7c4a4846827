"""What a conversion says of itself: all that changed, what was left alone, and what is not kept."""

import logging

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError
from asrnorm.norms import NormLayer
from helpers.small_net import small_net, trained


def test_the_summary_shows_what_changed_and_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="asrnorm"):
        model = asrnorm.convert(trained(small_net()), "asr")
    text = str(asrnorm.conversion_summary(model))
    assert text in caplog.text
    assert text.startswith("2 of 3 norm layers converted to 'asr' by preset 'all', picked for this network;")
    assert "  1  BatchNorm2d -> ASRNorm2d(8, gated_rescale=True)" in text
    assert "running statistics of 2 layers are not used by 'asr'" in text
    before, after = asrnorm.conversion_summary(model).parameters
    assert after == sum(p.numel() for p in model.parameters()) > before


def test_the_summary_of_an_unconverted_model_is_refused():
    with pytest.raises(ConversionError):
        asrnorm.conversion_summary(small_net())
    built = asrnorm.create_model("wrn_16_4", norm="asr")
    with pytest.raises(ConversionError, match="ASRNorm2d layers were built in"):
        asrnorm.conversion_summary(built)


def test_running_statistics_that_start_anew_are_said():
    model = asrnorm.convert(nn.Sequential(nn.BatchNorm2d(8, track_running_stats=False)), "bn")
    assert "1 layer had no running statistics" in str(asrnorm.conversion_summary(model))
    model = asrnorm.convert(nn.Sequential(nn.BatchNorm2d(8)), "bn")
    assert "had no running statistics" not in str(asrnorm.conversion_summary(model))


def test_affine_values_without_a_place_are_said():
    class Scaled(NormLayer):
        def __init__(self, num_features, *, device=None, dtype=None):
            super().__init__()
            self.num_features = num_features
            self.scale = nn.Parameter(torch.ones(num_features, device=device, dtype=dtype))

    model = asrnorm.convert(trained(small_net()), Scaled, layers="1")
    assert "affine values of 1 layer are not used by 'Scaled'" in str(asrnorm.conversion_summary(model))


def test_dropping_affine_values_is_said():
    model = asrnorm.convert(trained(small_net()), "none")
    assert any("affine values of 2 layers are not used" in note for note in asrnorm.conversion_summary(model).notes)


def test_the_summary_says_how_a_fresh_network_takes_the_state():
    model = asrnorm.convert(trained(small_net()), "asr")
    assert any("convert that with gated_rescale=True" in note for note in asrnorm.conversion_summary(model).notes)
    fresh = asrnorm.convert(small_net(), "asr", gated_rescale=True)
    fresh.load_state_dict(model.state_dict())
    given = asrnorm.conversion_summary(asrnorm.convert(trained(small_net()), "asr", gated_rescale=True))
    assert not any("state dict" in note for note in given.notes)


def test_layers_that_were_picked_for_a_trained_network_are_named_for_loading():
    network = asrnorm.create_model("resnet18", num_classes=3)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
    asrnorm.convert(network, "asr")
    (note,) = (note for note in asrnorm.conversion_summary(network).notes if "state dict" in note)
    assert note.endswith("convert that with layers='early', gated_rescale=True")
    fresh = asrnorm.convert(asrnorm.create_model("resnet18", num_classes=3), "asr", layers="early", gated_rescale=True)
    fresh.load_state_dict(network.state_dict())


def test_settings_that_a_new_norm_does_not_have_are_said():
    model = nn.Sequential(nn.SyncBatchNorm(8), nn.BatchNorm2d(8, affine=False))
    told = str(asrnorm.conversion_summary(asrnorm.convert(model, "bn", layers="all")))
    assert "1 layer took statistics over all processes, and the new ones take those of their own" in told
    assert "1 layer had no gain and bias, and the new ones are trained" in told
    alike = asrnorm.convert(nn.Sequential(nn.BatchNorm2d(8)), "bn", layers="all")
    assert not asrnorm.conversion_summary(alike).notes
    single = asrnorm.convert(nn.Sequential(nn.SyncBatchNorm(8)), "asr", layers="all")
    assert "over all processes" not in str(asrnorm.conversion_summary(single))


def test_the_summary_is_found_inside_what_wraps_a_model():
    model = asrnorm.convert(small_net(), "asr")
    for wrapped in (nn.DataParallel(model), torch.compile(model), nn.DataParallel(torch.compile(model))):
        assert asrnorm.conversion_summary(wrapped) is asrnorm.conversion_summary(model)


@pytest.mark.parametrize(
    ("network", "norm", "reason"),
    [
        (small_net, "asr", "'all' here: the network is not trained yet"),
        (lambda: trained(small_net()), "asr", "'all' here: the network is trained, but its names show no stages"),
        (lambda: trained(small_net()), "bn", "'all' here: 'bn' standardizes by the batch"),
    ],
)
def test_the_summary_says_why_auto_chose_what_it_chose(network, norm, reason):
    notes = asrnorm.conversion_summary(asrnorm.convert(network(), norm)).notes
    assert any(note.startswith(f"layers='auto' is {reason}") for note in notes)
    named = asrnorm.conversion_summary(asrnorm.convert(network(), norm, layers="all")).notes
    assert not any("auto" in note for note in named)
