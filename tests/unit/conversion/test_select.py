"""Which layers the presets and patterns choose."""

import re

import pytest
from torch import nn

import asrnorm
from asrnorm.core.errors import ConversionError, InputTypeError


def converted(model, **choice):
    return [row[0] for row in asrnorm.conversion_summary(asrnorm.convert(model, "asr", **choice)).converted]


def resnet18():
    return asrnorm.create_model("resnet18", num_classes=7)


def trained(name):
    model = asrnorm.create_model(name, num_classes=7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.num_batches_tracked.fill_(10)
    return model


def test_auto_takes_the_early_layers_of_a_trained_network_and_says_so():
    model = asrnorm.convert(trained("resnet18"), "asr")
    summary = asrnorm.conversion_summary(model)
    assert summary.chosen_by == "preset 'early', picked for this network"
    assert [row[0] for row in summary.converted] == [
        "bn1",
        "layer1.0.bn1",
        "layer1.0.bn2",
        "layer1.1.bn1",
        "layer1.1.bn2",
        "layer2.0.bn1",
        "layer2.0.bn2",
        "layer2.0.downsample.1",
        "layer2.1.bn1",
        "layer2.1.bn2",
    ]
    bottlenecks = converted(trained("resnet50"))
    assert len(bottlenecks) == 1 + 10 + 13
    assert all(name.startswith(("bn1", "layer1", "layer2")) for name in bottlenecks)


def test_auto_takes_all_layers_of_a_fresh_network_and_where_names_show_no_stages():
    assert len(converted(resnet18())) == 20
    assert len(converted(asrnorm.create_model("wrn_16_4"))) == 13
    flat = nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4))
    nn.init.normal_(flat[0].weight)
    assert converted(flat) == ["0", "2"]


@pytest.mark.parametrize("norm", ["bn", "bn_test", "dsbn"])
def test_auto_takes_all_where_the_batch_still_standardizes(norm):
    model = asrnorm.convert(trained("resnet18"), norm)
    assert len(asrnorm.conversion_summary(model).converted) == 20


def test_resnet_12b_takes_the_second_norm_of_each_block():
    names = converted(resnet18(), layers="resnet-12b")
    assert len(names) == 12
    assert "layer1.0.bn2" in names
    assert "layer1.0.bn1" not in names


def test_stages_and_early_and_first():
    stages = ["bn1", "layer1.0.bn1", "layer2.0.bn1", "layer3.0.bn1", "layer4.0.bn1"]
    assert converted(resnet18(), layers="stages") == stages
    early = converted(resnet18(), layers="early")
    assert early[0] == "bn1"
    assert len(early) == 1 + 4 + 5
    assert all(name.startswith(("bn1", "layer1", "layer2")) for name in early)
    assert converted(resnet18(), layers="first") == ["bn1"]
    assert len(converted(resnet18(), layers="all")) == 20


def test_but_last_leaves_the_last_stage_and_what_follows_it():
    body = converted(resnet18(), layers="but-last")
    assert len(body) == 1 + 4 + 5 + 5
    assert not any(name.startswith("layer4") for name in body)
    wrn = converted(asrnorm.create_model("wrn_16_4"), layers="but-last")
    assert wrn
    assert not any(name.startswith(("group3", "norm")) for name in wrn)


def test_stages_of_other_families_are_read_from_their_names():
    wrn = converted(asrnorm.create_model("wrn_16_4"), layers="early")
    assert {name.split(".")[0] for name in wrn} == {"group1", "group2"}  # two of three: ceil(3 / 2)
    flat = nn.ModuleDict(
        {
            "conv_stem": nn.Sequential(nn.BatchNorm2d(4)),
            "stages": nn.ModuleList(nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4)) for _ in range(4)),
            "norm_head": nn.BatchNorm2d(4),
        }
    )
    assert converted(flat, layers="stages") == ["conv_stem.0", "stages.0.0", "stages.1.0", "stages.2.0", "stages.3.0"]


def test_a_prefix_before_the_resnet_does_not_matter():
    model = nn.ModuleDict({"backbone": trained("resnet18")})
    names = converted(model)
    assert len(names) == 10
    assert names[0] == "backbone.bn1"


def test_resnet_12_is_refused_on_bottlenecks():
    with pytest.raises(ConversionError, match="use 'early'"):
        asrnorm.convert(asrnorm.create_model("resnet50"), "asr", layers="resnet-12")


def test_stages_are_refused_where_names_show_none():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    with pytest.raises(ConversionError, match="use name patterns"):
        asrnorm.convert(model, "asr", layers="stages")


def test_patterns():
    assert converted(resnet18(), layers="layer1.*") == ["layer1.0.bn1", "layer1.0.bn2", "layer1.1.bn1", "layer1.1.bn2"]
    assert converted(resnet18(), layers=["bn1", "*.downsample.*"]) == ["bn1"] + [
        f"layer{stage}.0.downsample.1" for stage in (2, 3, 4)
    ]


def test_a_function_sees_name_and_module():
    assert converted(resnet18(), layers=lambda name, module: module.num_features == 512 and "bn2" in name) == [
        "layer4.0.bn2",
        "layer4.1.bn2",
    ]


def test_a_pattern_that_matches_nothing_is_refused_with_examples():
    with pytest.raises(ConversionError, match=r"bn1, layer1\.0\.bn1"):
        asrnorm.convert(resnet18(), "asr", layers=["bn1", "layer9.*"])
    with pytest.raises(ConversionError, match="did you mean 'resnet-12'"):
        asrnorm.convert(resnet18(), "asr", layers="resnet12")


def test_wildcards_respect_the_kinds():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm1d(4))
    assert converted(model, layers="*") == ["0"]


def test_a_kind_in_one_word_is_that_kind_alone():
    model = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm1d(4))
    assert converted(model, kinds="batch1d") == ["1"]


def test_the_first_is_the_first_that_can_be_converted():
    model = nn.Sequential(nn.GroupNorm(1, 4), nn.BatchNorm2d(4), nn.BatchNorm2d(4))
    assert converted(model, layers="first") == ["1"]


def test_a_preset_among_patterns_is_said_to_stand_alone():
    with pytest.raises(ConversionError, match="layers='early'"):
        asrnorm.convert(resnet18(), "asr", layers=["early"])


@pytest.mark.parametrize("layers", [None, re.compile("bn"), [1], 3])
def test_layers_of_another_type_are_refused(layers):
    with pytest.raises(InputTypeError):
        asrnorm.convert(resnet18(), "asr", layers=layers)


def test_why_nothing_can_be_converted_is_said():
    with pytest.raises(ConversionError, match=r"0 \(LazyBatchNorm2d\): .*, and 1 more"):
        asrnorm.convert(nn.Sequential(nn.LazyBatchNorm2d(), nn.LazyBatchNorm2d()), "asr")


class _Head(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.resnet18 = network


@pytest.mark.parametrize(
    ("wrap", "prefix"),
    [
        (lambda net: nn.Sequential(nn.Identity(), net), "1."),
        (lambda net: nn.Sequential(nn.Sequential(nn.Identity(), net)), "0.1."),
        (lambda net: nn.ModuleDict({"v2": net}), "v2."),
        (_Head, "resnet18."),
        (lambda net: nn.Sequential(net, nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))), "0."),
        (lambda net: nn.Sequential(net, nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))), "0."),
    ],
)
@pytest.mark.parametrize("preset", ["auto", "early", "stages", "but-last"])
def test_what_a_network_is_wrapped_in_does_not_hide_its_stages(wrap, prefix, preset):
    plain = trained("resnet18")
    names = [prefix + name for name in converted(plain, layers=preset)]
    assert converted(wrap(trained("resnet18")), layers=preset) == names
    assert 0 < len(names) < 20


def test_layers_that_were_converted_still_count_as_stages():
    model = asrnorm.convert(trained("resnet18"), "asr", layers="early")
    with pytest.raises(ConversionError):
        asrnorm.convert(model, "asr", layers="early")
