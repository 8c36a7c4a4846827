"""Every form of a model comes to one interface; what cannot be loaded is one line."""

import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.audit import InputSpec
from asrnorm.audit.load import count_classes, load_model, load_strictly
from asrnorm.core.errors import InputError, MissingDependencyError, WrongCallError
from helpers.audited import MODULE, ColorNet
from helpers.finished_run import install_run
from helpers.toy_suite import ToySuite

IMAGES = torch.rand((3, 3, 32, 32), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "nets.py"
    path.write_text(MODULE)
    return path


def load(*words, **options):
    model = load_model(*words, device="cpu", **options)
    model.probe((32, 32))
    return model


def test_a_function_of_a_file_or_module(file, monkeypatch):
    model = load(f"{file}:net")
    assert (model.name, model.num_classes, model.has_gradients) == ("nets.py:net", 3, True)
    assert torch.allclose(model.predict(IMAGES), ColorNet()(IMAGES))
    monkeypatch.syspath_prepend(file.parent)
    assert load("nets:net").fingerprint == model.fingerprint


def test_the_fingerprint_follows_weights_and_code(file):
    first = load(f"{file}:random_net")
    assert load(f"{file}:random_net").fingerprint == first.fingerprint  # seeded before the call
    assert load(f"{file}:random_net", seed=1).fingerprint != first.fingerprint
    file.write_text(MODULE + "\n# another forward\n")
    assert load(f"{file}:random_net").fingerprint != first.fingerprint


def test_two_functions_of_a_file_are_two_models(file):
    file.write_text(MODULE + "\n\ndef other_net():\n    return random_net()\n")
    assert load(f"{file}:other_net").fingerprint != load(f"{file}:random_net").fingerprint


def test_what_lies_beside_ones_own_file_can_be_imported(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "parts_beside.py").write_text("from helpers.audited import ColorNet\n")
    (tmp_path / "own_net.py").write_text("from parts_beside import ColorNet\ndef build():\n    return ColorNet()\n")
    assert load(f"{tmp_path / 'own_net.py'}:build").num_classes == 3


def test_a_module_is_looked_for_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.path", [place for place in sys.path if place])
    (tmp_path / "net_of_this_folder.py").write_text(
        "from helpers.audited import ColorNet\ndef build():\n    return ColorNet()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load("net_of_this_folder:build").num_classes == 3


def test_weights_must_fit_whole(file, tmp_path):
    state = {f"module.{key}": 2 * value for key, value in ColorNet().state_dict().items()}  # as DDP saves it
    torch.save(state, tmp_path / "w.pth")
    model = load(f"{file}:net", weights=str(tmp_path / "w.pth"))
    assert torch.allclose(model.predict(IMAGES), 2 * ColorNet()(IMAGES))
    torch.save({"fc.weight": torch.zeros(3, 3)}, tmp_path / "half.pth")
    with pytest.raises(InputError, match=r"half.pth: not the weights of this ColorNet: it lacks fc.bias"):
        load(f"{file}:net", weights=str(tmp_path / "half.pth"))


def test_weights_of_a_confined_network_fit_it_before_it_is_confined(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\nimport asrnorm\ndef net():\n"
        "    parts = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)\n"
        "    return asrnorm.convert(nn.Sequential(*parts), 'asr')\n"
    )
    network = load(f"{tmp_path / 'net.py'}:net").module.network
    asrnorm.confine(network, [torch.rand(8, 3, 16, 16)])
    torch.save(network.state_dict(), tmp_path / "w.pth")
    model = load(f"{tmp_path / 'net.py'}:net", weights=str(tmp_path / "w.pth"))
    images = 9 * torch.rand(4, 3, 16, 16)
    assert torch.equal(model.module.network.eval()(images), network.eval()(images))


class Hostile:
    def __reduce__(self):
        return (open, ("pwned", "w"))


def test_a_hostile_pickle_runs_nothing(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.pth").write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(InputError, match=r"it is not loaded$"):
        load(f"{file}:net", weights="w.pth")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("absent", "has no function 'absent'"),
        ("fails", r"fails\(\) raised KeyError: 'weights'"),
        ("number", r"number\(\) returned int, not an nn.Module"),
        ("raises", r"nets.py:raises raised RuntimeError on images \(2, 3, 32, 32\): no such layer;"),
        ("nan", "NaN or infinite outputs for 2 of 2 images"),
        ("text", "nets.py:text returns str, not a tensor of logits"),
        ("image", r"returns \(2, 3, 32, 32\) for 2 images; expected \(2, number of classes\)"),
    ],
)
def test_what_a_function_can_do_wrong_is_one_line(file, name, line):
    with pytest.raises(InputError, match=line) as caught:
        load(f"{file}:{name}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("gone.py:net", "gone.py: no such file"),
        ("gone.onnx", "gone.onnx: no such file"),
        ("gone.pt2", "gone.pt2: no such file"),
        ("net.pth", "weights alone are no network"),
        ("resnet18", "resnet18: no such model; give a run folder"),
    ],
)
def test_a_word_that_names_no_model_is_one_line(word, line):
    with pytest.raises(WrongCallError, match=line):
        load_model(word)


def test_a_package_that_is_not_there_is_one_line():
    with pytest.raises(InputError, match=r"no_such_package\.x cannot be imported"):
        load_model("no_such_package.x:net")


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"not the folder of a run, it has no config.yaml"):
        load_model(str(tmp_path))


def test_a_run_folder_knows_its_classes_and_size(tmp_path, monkeypatch):
    suite = ToySuite()
    install_run(monkeypatch, tmp_path / "run", suite)
    model = load_model(str(tmp_path / "run"), device="cpu")
    model.probe(suite.image_size)
    assert model.class_names == tuple(suite.classes)
    assert model.num_classes == len(suite.classes)
    assert model.native_size == suite.image_size
    with pytest.raises(InputError, match="has weights of its own; leave out --weights"):
        load_model(str(tmp_path / "run"), weights="w.pth")


def test_mean_and_deviation_reach_the_network(file):
    form = InputSpec(mean=(0.5, 0.5, 0.5), std=(0.25, 0.5, 1.0))
    expected = ColorNet()((IMAGES - 0.5) / torch.tensor([0.25, 0.5, 1.0]).view(1, 3, 1, 1))
    assert torch.allclose(load(f"{file}:net", input_spec=form).predict(IMAGES), expected, atol=1e-5)
    with pytest.raises(InputError, match="--mean and --std belong together"):
        InputSpec(mean=(0.5, 0.5, 0.5))
    with pytest.raises(InputError, match="--std must be positive"):
        InputSpec(mean=(0.5, 0.5, 0.5), std=(0.0, 1.0, 1.0))


@pytest.mark.parametrize("library", ["torchvision", "timm"])
def test_a_library_that_is_missing_says_what_to_install(library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'asrnorm\[vision\]'"):
        load_model(f"{library}:resnet18", weights="DEFAULT")


def install_library(monkeypatch, library):
    """Stand in for a library: one network whose head has as many outputs as asked for."""

    def build(name, weights=None, pretrained=False, num_classes=5):
        if name.partition(".")[0] != "net":
            raise ValueError(f"Unknown model {name}\nmore")
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, num_classes))
        network.asked = (name, weights, pretrained)
        if library == "timm":
            network.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
        return network

    module = ModuleType(library)
    module.create_model = build
    monkeypatch.setitem(sys.modules, library, module)
    monkeypatch.setitem(sys.modules, f"{library}.models", SimpleNamespace(get_model=build))


def test_names_of_libraries_with_their_own_weights_and_normalization(monkeypatch):
    for library in ("torchvision", "timm"):
        install_library(monkeypatch, library)
    vision = load("torchvision:net", weights="DEFAULT")
    assert vision.module.network.asked == ("net", "DEFAULT", False)
    assert vision.input_spec.mean == (0.485, 0.456, 0.406)
    timm = load("timm:net", weights="a1_in1k")
    assert timm.module.network.asked == ("net.a1_in1k", None, True)
    assert timm.input_spec.std == (0.5, 0.5, 0.5)
    with pytest.raises(InputError, match="has no weights; give --weights FILE, or --weights pretrained"):
        load_model("timm:net")
    with pytest.raises(InputError, match=r"torchvision:nett with weights 'DEFAULT' cannot be built \(Unknown model"):
        load_model("torchvision:nett", weights="DEFAULT")


def test_a_file_of_weights_tells_a_library_the_number_of_classes(monkeypatch, tmp_path):
    install_library(monkeypatch, "torchvision")
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 7))
    torch.save(nn.DataParallel(network).state_dict(), tmp_path / "w.pth")
    model = load("torchvision:net", weights=str(tmp_path / "w.pth"))
    assert model.num_classes == 7
    assert torch.equal(model.module.network[2].weight, network[2].weight)


def test_the_number_of_classes_is_that_of_the_networks_last_layer_whatever_the_order_of_a_file():
    state = {"fc.bias": torch.zeros(7), "layer4.bn2.bias": torch.zeros(512)}
    own = ("conv1.weight", "layer4.bn2.bias", "fc.weight", "fc.bias")
    assert count_classes(state, own, "w.safetensors") == 7


def test_a_layer_that_loads_in_its_own_way_and_lacks_something_is_one_line():
    class Own(nn.Linear):
        def _load_from_state_dict(self, state, prefix, *rest):  # noqa: ARG002
            self.scale = state[f"{prefix}scale"]

        def state_dict(self, **options):
            return {**super().state_dict(**options), f"{options.get('prefix', '')}scale": torch.ones(1)}

    with pytest.raises(InputError, match=r"w\.pth: not the weights of this Own: it lacks scale"):
        load_strictly(Own(3, 2), {"weight": torch.zeros(2, 3), "bias": torch.zeros(2)}, "w.pth")
