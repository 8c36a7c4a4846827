"""`asrnorm.save` and `asrnorm.load`: weights and conversion in one file, into any network of the same architecture."""

import copy
import json
import logging
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save_file as save_plain
from torch import nn

import asrnorm
from asrnorm.core.errors import AsrnormError, ConversionError, InputError, InputTypeError, UnknownNameError
from asrnorm.models.base import NormalizedInput
from asrnorm.models.weights import pack_state
from asrnorm.norms import ASRNorm2d, InstanceNorm, NormLayer
from asrnorm.norms.base import NORMS
from helpers.small_net import small_net, trained

X = torch.randn(2, 3, 32, 32)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.safetensors"


def block(width_in, width, kernel):
    parts = {"conv": nn.Conv2d(width_in, width, kernel), "bn": nn.BatchNorm2d(width), "relu": nn.ReLU()}
    return nn.Sequential(OrderedDict(parts))


def staged(num_classes=3, kernel=3):
    """A network whose names show stages, so that `auto` converts a part of it once it is trained."""
    parts = {
        "stem": block(3, 4, 3),
        "layer1": nn.Sequential(block(4, 4, kernel)),
        "layer2": nn.Sequential(block(4, 8, 3)),
        "pool": nn.AdaptiveAvgPool2d(1),
        "flat": nn.Flatten(),
        "fc": nn.Linear(8, num_classes),
    }
    return nn.Sequential(OrderedDict(parts))


def trained_staged():
    model = staged()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
    return model


def convnet(norm="bn"):
    return asrnorm.create_model("digits_convnet", norm=norm, num_classes=5, channels=(4, 8), hidden=16)


def same_outputs(first, second, x=X):
    return torch.equal(first.eval()(x), second.eval()(x))


def test_a_fresh_network_is_converted_like_the_trained_one_and_gets_its_weights(path):
    model = asrnorm.convert(trained_staged(), "asr")
    asrnorm.save(model, path)
    fresh = staged()
    assert asrnorm.load(path, model=fresh) is fresh
    assert same_outputs(model, fresh)
    assert isinstance(fresh.layer1[0].bn, ASRNorm2d)
    assert type(fresh.layer2[0].bn) is nn.BatchNorm2d


def test_a_network_converted_in_the_same_way_is_only_filled(path):
    model = asrnorm.convert(trained(small_net()), "asr")
    asrnorm.save(model, path)
    # The same options, one of them spelled out although it is the default.
    other = asrnorm.convert(trained(small_net()), "asr", gated_rescale=True, residual=True)
    layer = other[1]
    asrnorm.load(path, other)
    assert other[1] is layer
    assert same_outputs(model, other, torch.randn(4, 3, 12, 12))


@pytest.mark.parametrize("norm", [name for name in NORMS.names() if name != "dsbn"])
def test_every_norm_comes_back_with_its_function(norm, path):
    model = asrnorm.convert(trained(small_net()), norm, layers="all")
    asrnorm.save(model, path)
    fresh = asrnorm.load(path, trained(small_net()))
    assert same_outputs(model, fresh, torch.randn(4, 3, 12, 12))


def test_options_and_several_conversions_come_back(path):
    model = trained(small_net())
    asrnorm.convert(model, "bn", layers="1", eps=0.1)
    asrnorm.convert(model, "asr", layers="1", residual=False)
    asrnorm.convert(model, asrnorm.norms.InstanceNorm, layers="4", eps=0.2)  # a registered class, not its name
    asrnorm.save(model, path)
    fresh = asrnorm.load(path, trained(small_net()))
    assert (fresh[1].eps, fresh[1].residual, fresh[4].eps, type(fresh[4])) == (0.1, False, 0.2, InstanceNorm)
    assert same_outputs(model, fresh, torch.randn(4, 3, 12, 12))
    assert type(asrnorm.revert(fresh)[1]) is nn.BatchNorm2d


@pytest.mark.parametrize("norm", [None, "bn", "asr"])
def test_a_network_of_create_model_is_built_from_the_file(norm, path):
    model = convnet(norm)
    asrnorm.save(model, path)
    assert same_outputs(model, asrnorm.load(path))
    wrapped = NormalizedInput(copy.deepcopy(model), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    asrnorm.save(wrapped, path)
    assert same_outputs(wrapped, asrnorm.load(path))


def test_a_converted_network_of_create_model_is_built_in_the_dtype_of_the_file(path):
    model = asrnorm.convert(convnet(), "asr").to(torch.float64)
    asrnorm.save(model, path)
    loaded = asrnorm.load(path)
    assert next(loaded.parameters()).dtype == torch.float64
    assert same_outputs(model, loaded, X.double())
    assert next(asrnorm.load(path, convnet()).parameters()).dtype == torch.float32


def test_revert_gives_the_layers_of_the_given_network(path):
    asrnorm.save(asrnorm.convert(trained(small_net()), "asr"), path)
    fresh = trained(small_net())
    norms = fresh[1], fresh[4]
    gain = fresh[1].weight.detach().clone()
    asrnorm.revert(asrnorm.load(path, fresh))
    assert (fresh[1], fresh[4]) == norms
    assert torch.equal(fresh[1].weight, gain)


def test_loading_draws_no_random_numbers(path):
    asrnorm.save(asrnorm.convert(convnet(), "asr"), path)
    fresh = convnet()
    before = torch.get_rng_state()
    asrnorm.load(path)
    asrnorm.load(path, fresh)
    assert torch.equal(torch.get_rng_state(), before)


def test_wrapped_networks_are_saved_by_their_plain_names(path):
    model = asrnorm.convert(trained_staged(), "asr")
    asrnorm.save(model, path)
    plain = path.read_bytes()
    inside = copy.deepcopy(model)
    inside.layer1 = torch.compile(inside.layer1)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for wrapped in (
        nn.DataParallel(model),
        torch.compile(model),
        nn.DataParallel(torch.compile(model)),
        averaged,
        inside,
    ):
        asrnorm.save(wrapped, path)
        assert path.read_bytes() == plain
        with torch.no_grad():
            for value in wrapped.parameters():
                value.zero_()
        assert asrnorm.load(path, wrapped) is wrapped
    assert same_outputs(model, asrnorm.load(path, staged()))


def test_the_network_of_an_averaged_model_is_converted_inside_it(path):
    asrnorm.save(asrnorm.convert(trained_staged(), "asr"), path)
    averaged = torch.optim.swa_utils.AveragedModel(staged())
    assert asrnorm.load(path, averaged) is averaged
    assert same_outputs(averaged, asrnorm.load(path, staged()))


def test_tied_weights_stay_tied_and_buffers_and_channels_last_come_back(path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.norm = nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
            self.second.weight = self.first.weight
            self.again = self.norm
            self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    model = asrnorm.convert(Tied(), "asr")
    model.to(memory_format=torch.channels_last).count += 3
    asrnorm.save(model, path)
    fresh = asrnorm.load(path, Tied())
    assert fresh.second.weight is fresh.first.weight
    assert fresh.again is fresh.norm
    assert torch.equal(fresh.first.weight, model.first.weight)
    assert fresh.count.tolist() == [3, 3]


def test_confined_means_come_back(path):
    model = asrnorm.convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), "asr")
    asrnorm.confine(model, [torch.rand(4, 3, 8, 8)])
    asrnorm.save(model, path)
    fresh = asrnorm.load(path, nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    assert torch.equal(fresh[1].shift_most, model[1].shift_most)


def test_a_single_layer_is_returned_converted(path):
    layer = asrnorm.convert(nn.BatchNorm2d(4), "asr")
    asrnorm.save(layer, path)
    assert same_outputs(layer, asrnorm.load(path, nn.BatchNorm2d(4)), torch.randn(2, 4, 5, 5))


def test_a_norm_without_a_registered_name_needs_a_network_that_has_it(path):
    class Scaled(NormLayer):
        def __init__(self, num_features, *, device=None, dtype=None):
            super().__init__()
            self.num_features = num_features
            self.scale = nn.Parameter(torch.rand(num_features, device=device, dtype=dtype))

    def build():
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))

    model = asrnorm.convert(build(), Scaled)
    asrnorm.save(model, path)
    with pytest.raises(ConversionError):
        asrnorm.load(path, build())
    loaded = asrnorm.load(path, asrnorm.convert(build(), Scaled))
    assert torch.equal(loaded[1].scale, model[1].scale)


@pytest.mark.parametrize(
    ("other", "error", "named"),
    [
        (lambda: staged(num_classes=4), InputError, "fc.weight"),
        (lambda: staged(kernel=1), InputError, "layer1.0.conv.weight"),
        (convnet, InputError, "stem.bn"),
        (lambda: asrnorm.convert(staged(), "in"), ConversionError, "stem.bn"),
        (lambda: asrnorm.convert(staged(), "asr"), ConversionError, "stem.bn"),
        (lambda: asrnorm.revert(asrnorm.convert(staged(), "asr")).append(nn.BatchNorm2d(3)), InputError, "6"),
        (lambda: nn.DataParallel(staged()), ConversionError, "DataParallel"),
        (lambda: torch.compile(staged()), ConversionError, "compiled"),
        (dict, InputTypeError, "dict"),
    ],
)
def test_another_network_is_refused_by_its_first_difference_and_stays_as_it_is(other, error, named, path):
    asrnorm.save(asrnorm.convert(trained_staged(), "asr"), path)
    model = other()
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with pytest.raises(error, match=named) as caught:
        asrnorm.load(path, model)
    assert "\n" not in str(caught.value)
    assert not modules or list(model.modules()) == modules


def test_swapped_arguments_are_told_in_one_line(path):
    for call in (lambda: asrnorm.save(path, staged()), lambda: asrnorm.load(staged(), path)):
        with pytest.raises(InputTypeError, match="path"):
            call()


def test_a_foreign_network_cannot_be_built_from_a_file(path):
    asrnorm.save(asrnorm.convert(trained(small_net()), "asr"), path)
    with pytest.raises(InputError, match="model=net"):
        asrnorm.load(path)


def test_damaged_foreign_and_absent_files_are_refused(path, tmp_path):
    model = asrnorm.convert(trained(small_net()), "asr")
    asrnorm.save(model, path)
    whole = path.read_bytes()
    with pytest.raises(InputError, match="no such"):
        asrnorm.load(tmp_path / "gone.safetensors", trained(small_net()))
    for damaged in (b"", whole[:5], whole[: len(whole) // 2], whole[:-1], bytes([whole[0] ^ 255]) + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError):
            asrnorm.load(path, trained(small_net()))
    flipped = whole.replace(b"gated_rescale", b"gated_rescalf")
    assert flipped != whole
    path.write_bytes(flipped)
    with pytest.raises(InputError, match="damaged"):
        asrnorm.load(path, trained(small_net()))
    save_plain({"weight": torch.ones(2)}, path)
    with pytest.raises(InputError, match=r"not written by asrnorm\.save"):
        asrnorm.load(path, trained(small_net()))
    for call in (asrnorm.load, lambda name: asrnorm.save(model, name)):
        with pytest.raises(InputError, match="safetensors"):
            call(tmp_path / "net.pt")


GOOD = {"version": 1, "conversion": [{"norm": "asr", "options": {}, "layers": ["1"]}], "model": None}
CALL = {"name": "resnet18", "norm": None, "norm_options": {}, "options": {"num_classes": 3}, "normalize": False}


@pytest.mark.parametrize(
    "content",
    [
        "nothing",
        "[" * 100_000,
        " " * 2_000_000,
        "[]",
        "{}",
        json.dumps({**GOOD, "version": 2}),
        json.dumps({**GOOD, "conversion": 3}),
        json.dumps({**GOOD, "conversion": [{"norm": ["asr"], "options": {}, "layers": ["1"]}]}),
        json.dumps({**GOOD, "conversion": [{"norm": "nothing", "options": {}, "layers": ["1"]}]}),
        json.dumps({**GOOD, "conversion": [{"norm": "asr", "options": {"optimizer": 1}, "layers": ["1"]}]}),
        json.dumps({**GOOD, "conversion": [{"norm": "asr", "options": {}, "layers": ["../\u001b[2J"]}]}),
        json.dumps({**GOOD, "conversion": [{"norm": "asr", "options": {"rescale_features": 10**12}, "layers": ["1"]}]}),
    ],
)
def test_hostile_metadata_are_refused(content, path):
    path.write_bytes(pack_state({"0.weight": torch.ones(2)}, {"asrnorm": content}))
    with pytest.raises(AsrnormError) as caught:
        asrnorm.load(path, nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        "resnet18",
        {**CALL, "name": "nothing"},
        {**CALL, "options": {"weights": "/etc/passwd"}},
        {**CALL, "options": {"norm_layer": "x"}},
        {**CALL, "options": {"num_classes": 10**13}},
        {**CALL, "name": "timm", "options": {"architecture": "hf-hub:somebody/net"}},
        {**CALL, "name": "digits_convnet", "options": {"hidden": 10**13}},
    ],
)
def test_a_file_cannot_make_load_read_download_or_allocate_what_it_likes(call, path):
    content = {"version": 1, "conversion": [], "model": call}
    path.write_bytes(pack_state({"fc.weight": torch.ones(2)}, {"asrnorm": json.dumps(content)}))
    with pytest.raises((InputError, UnknownNameError)):
        asrnorm.load(path)


def test_what_cannot_be_saved_is_refused_before_a_file_is_touched(path):
    path.write_bytes(b"old")
    with pytest.raises(InputError, match="run one batch"):
        asrnorm.save(small_net(), path)  # lazy
    with pytest.raises(InputError):
        asrnorm.save(nn.Linear(2, 2, device="meta"), path)

    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"a": 1}

    with pytest.raises(InputTypeError):
        asrnorm.save(Extra(2, 2), path)
    assert path.read_bytes() == b"old"


def test_the_file_is_plain_safetensors_and_equal_networks_give_equal_bytes(path):
    model = asrnorm.convert(trained(small_net()), "asr")
    asrnorm.save(model, path)
    first = path.read_bytes()
    assert load_file(path).keys() == model.state_dict().keys()
    asrnorm.save(copy.deepcopy(model), path)
    assert path.read_bytes() == first


def test_a_network_that_cannot_be_copied_is_loaded_too(path, caplog):
    asrnorm.save(asrnorm.convert(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), "asr"), path)

    class Stubborn(nn.Sequential):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    with caplog.at_level(logging.INFO, logger="asrnorm"):
        model = asrnorm.load(path, Stubborn(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    assert isinstance(model[1], ASRNorm2d)
