"""Models of runs, at their start and from what they left."""

from dataclasses import replace

import pytest
import torch

from asrnorm.core.errors import ConversionError, InputError
from asrnorm.models import MODELS, create_model
from asrnorm.norms import NORMS
from asrnorm.recipes import recipe
from asrnorm.training.assembly import build_like, build_model, check_config, rehearse
from helpers.tiny_run import Choice, ToyNet, ToySuite, tiny_config

CPU = torch.device("cpu")


@pytest.fixture
def weights(tmp_path):
    network = create_model("resnet18", num_classes=3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight)
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize(
    ("norm", "count"), [("asr", 10), ("in", 10), ("gn", 10), ("sn", 10), ("bin", 10), ("ilm", 10), ("bn_test", 20)]
)
def test_layers_that_were_picked_are_those_of_the_start(weights, norm, count, normalized, monkeypatch):
    suite = ToySuite()
    if normalized:
        monkeypatch.setattr(ToySuite, "mean", (0.5, 0.5, 0.5))
        monkeypatch.setattr(ToySuite, "std", (0.2, 0.2, 0.2))
    config = tiny_config(model=Choice(name="resnet18"), norm=Choice(name=norm), weights=str(weights), layers="auto")
    first = build_model(config, suite, 3, CPU).eval()
    again = build_like(config, suite, 3, CPU, first.state_dict()).eval()
    assert sum(type(module) is NORMS[norm] for module in again.modules()) == count
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(first(images), again(images))


@pytest.mark.parametrize("options", [{}, {"eps": 0.5, "momentum": 0.01}])
def test_bn_of_a_pretrained_network_has_its_options_at_the_start_and_when_built_again(weights, options):
    norm = Choice(name="bn", args=options)
    config = tiny_config(model=Choice(name="resnet18"), norm=norm, weights=str(weights), layers="auto")
    first = build_model(config, ToySuite(), 3, CPU).eval()
    again = build_like(config, ToySuite(), 3, CPU, first.state_dict()).eval()
    for model in (first, again):
        assert {(bn.eps, bn.momentum) for bn in model.modules() if isinstance(bn, torch.nn.BatchNorm2d)} == {
            (options.get("eps", 1e-5), options.get("momentum", 0.1))
        }
    images = torch.rand(2, 3, 64, 64)
    assert torch.equal(first(images), again(images))


def test_a_model_with_other_outputs_than_classes_is_refused(monkeypatch):
    monkeypatch.setitem(MODELS._entries, "five", lambda *, norm_layer: ToyNet(num_classes=5, norm_layer=norm_layer))
    config = tiny_config(model=Choice(name="five"), norm=Choice(name="bn"))
    with pytest.raises(InputError, match="model 'five' has 5 outputs, the suite 3 classes; let it take num_classes"):
        build_model(config, ToySuite(), 3, CPU)


def test_fewer_outputs_than_classes_are_refused_and_more_are_not():
    def config(outputs):
        return tiny_config(model=Choice(name="wrn_16_4", args={"num_classes": outputs}), norm=Choice(name="bn"))

    with pytest.raises(InputError, match=r"model.num_classes=2: the suite has 3 classes; leave it out, or give more"):
        build_model(config(2), ToySuite(), 3, CPU)
    assert build_model(config(4), ToySuite(), 3, CPU).num_classes == 4


@pytest.mark.parametrize(("field", "option"), [("norm", "dtype"), ("norm", "device"), ("model", "norm_layer")], ids=str)
def test_what_a_run_fills_in_itself_is_refused(field, option):
    base = tiny_config(model=Choice(name="wrn_16_4"), norm=Choice(name="asr"))
    changed = replace(base, **{field: Choice(name=getattr(base, field).name, args={option: "x"})})
    with pytest.raises(InputError, match=rf"{option}"):
        check_config(changed)


def test_a_method_that_differentiates_twice_is_not_compiled():
    with pytest.raises(InputError, match=r"m_ada differentiates twice, which torch\.compile cannot"):
        check_config(tiny_config(method=Choice(name="m_ada"), compile=True))
    check_config(tiny_config(method=Choice(name="ada"), compile=True))


def test_layers_without_weights_to_convert_are_refused():
    with pytest.raises(InputError, match="layers=erly chooses norms of a pretrained network: it needs weights"):
        check_config(tiny_config(layers="erly"))


def test_a_rehearsal_needs_no_weights_and_refuses_layers_that_are_not_there():
    pretrained = {"model": Choice(name="resnet18"), "norm": Choice(name="asr"), "weights": "weights/nowhere.pth"}
    for layers in ("auto", "early", "layer1.*"):
        rehearse(tiny_config(**pretrained, layers=layers))
    with pytest.raises(ConversionError, match="did you mean 'early'"):
        rehearse(tiny_config(**pretrained, layers="erly"))
    with pytest.raises(ConversionError, match="preset 'resnet-12' is for ResNets of basic blocks"):
        rehearse(tiny_config(**{**pretrained, "model": Choice(name="resnet50")}, layers="resnet-12"))


def test_a_rehearsal_makes_networks_whose_constructors_read_values(monkeypatch):
    def reading(*, norm_layer, num_classes=3, rates=3):
        return ToyNet(norm_layer=norm_layer, num_classes=num_classes, dropout=torch.linspace(0, 0.1, rates)[-1].item())

    monkeypatch.setitem(MODELS._entries, "reading", reading)
    state = torch.get_rng_state()
    rehearse(tiny_config(model=Choice(name="reading")))
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(IndexError):  # its own error, as training would give it
        rehearse(tiny_config(model=Choice(name="reading", args={"rates": 0})))


def test_weights_that_are_not_there_are_told_with_a_file_that_can_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    config = tiny_config(model=Choice(name="resnet18"), weights=recipe("pacs.erm_asr").weights)
    with pytest.raises(InputError, match=r"no such file of weights; try: asrnorm data fetch resnet18, and --set weig"):
        build_model(config, ToySuite(), 3, CPU)


def test_weights_beside_the_user_are_told_with_their_whole_path(tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.pt").touch()
    config = tiny_config(model=Choice(name="resnet18"), weights="my.pt")
    with pytest.raises(InputError, match=f"to take the one that is here, give {tmp_path / 'my.pt'}$"):
        build_model(config, ToySuite(), 3, CPU)
