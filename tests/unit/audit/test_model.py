"""A model's input and outputs are read as it means them; its fingerprint follows all that decides them."""

import importlib
import sys

import pytest
import torch
from torch import nn

import asrnorm
from asrnorm.audit import AuditedModule, InputSpec
from asrnorm.audit.model import are_probabilities
from asrnorm.core.errors import DeviceMemoryError, InputError
from helpers.audited import ColorNet


def test_an_image_made_smaller_keeps_something_of_every_pixel():
    images = torch.zeros(1, 3, 8, 8)
    images[..., 0] = 1.0  # the first column alone, between the places that plain sampling would look at
    small = InputSpec(size=(2, 2)).prepare(images)
    assert small.shape == (1, 3, 2, 2)
    assert bool((small[..., 0] > 0.05).all())
    assert InputSpec(size=(8, 8)).prepare(images) is images


def test_numbers_that_do_not_add_up_to_one_are_no_probabilities():
    rows = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    assert are_probabilities(rows)
    assert are_probabilities(rows.half() * 1.0005)
    assert not are_probabilities(rows * 1.02)
    assert not are_probabilities(torch.tensor([[0.25, 0.75], [0.5, 0.47]]))
    assert not are_probabilities(torch.tensor([[-0.01, 1.01]]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_probabilities_are_known_however_they_are_rounded(classes, dtype):
    logits = 3 * torch.randn(50, classes, generator=torch.Generator().manual_seed(0))
    assert are_probabilities(logits.softmax(1).to(dtype))
    assert not are_probabilities(logits.to(dtype))


@pytest.mark.parametrize("classes", [2, 10, 20])
def test_probabilities_in_eight_bits_are_known_too(classes):
    logits = torch.randn(50, classes, generator=torch.Generator().manual_seed(0))
    assert are_probabilities((logits.softmax(1) * 256).round() / 256)


def test_a_mean_of_bytes_is_refused():
    with pytest.raises(InputError, match=r"values in \[0, 1\]: divide those for 0 to 255 by 255"):
        InputSpec(mean=(124, 116, 104), std=(58, 57, 57))


def test_equal_weights_do_not_make_equal_networks():
    class Halved(nn.ReLU):
        def forward(self, images):
            return super().forward(images) / 2

    def make(activation):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), activation, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    networks = [make(nn.ReLU()), make(nn.Hardswish()), make(Halved()), asrnorm.convert(make(nn.ReLU()), "bn_test")]
    assert len({AuditedModule("net", network).fingerprint for network in networks}) == 4
    assert AuditedModule("net", make(nn.ReLU())).fingerprint == AuditedModule("other", networks[0]).fingerprint


class Scaled(nn.Module):
    """A network whose answer hangs on what its state does not show."""

    def __init__(self, scale, buffer):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        nn.init.ones_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.scale = scale
        self.register_buffer("shift", torch.tensor(buffer), persistent=False)

    def forward(self, x):
        return self.fc(x.mean((2, 3))) * self.scale + self.shift


def probed(network):
    model = AuditedModule("net", network)
    model.probe((8, 8))
    return model.fingerprint


def test_the_fingerprint_follows_what_the_state_does_not_show():
    first = probed(Scaled(1.0, 0.0))
    assert probed(Scaled(1.0, 0.0)) == first
    assert probed(Scaled(1.5, 0.0)) != first, "a plain attribute"
    shifted = [AuditedModule("net", Scaled(1.0, shift)).fingerprint for shift in (0.0, 1e-9)]
    assert shifted[0] != shifted[1], "a buffer that is not saved, without a probe"


def test_probing_twice_is_probing_once():
    model = AuditedModule("net", Scaled(1.0, 0.0))
    model.probe((8, 8))
    once = model.fingerprint
    model.probe((8, 8))
    assert model.fingerprint == once


@pytest.mark.filterwarnings("ignore")  # quantization is told to be on its way out
def test_the_fingerprint_follows_quantized_weights():
    def quantized(seed):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
        return torch.ao.quantization.quantize_dynamic(network, {nn.Linear})

    found = [AuditedModule("net", quantized(seed)).fingerprint for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]


def test_what_is_trained_of_a_network_is_left_to_its_owner():
    network = ColorNet()
    next(network.parameters()).requires_grad_(False)
    before = [parameter.requires_grad for parameter in network.parameters()]
    AuditedModule("net", network).probe((32, 32))
    assert [parameter.requires_grad for parameter in network.parameters()] == before
    assert any(before)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_the_fingerprint_follows_base_classes_and_what_lies_beside_them(tmp_path, monkeypatch):
    package = tmp_path / "ownpackage"
    (package / "nets").mkdir(parents=True)
    base = "from torch import nn\nfrom ownpackage.scale import SCALE\nclass Base(nn.Module):\n"
    parts = {
        "nets/base.py": base + "    def forward(self, x):\n        return SCALE * x.mean((2, 3))\n",
        "nets/zoo.py": "from ownpackage.nets.base import Base\nclass Net(Base):\n    pass\n",
        "scale.py": "SCALE = 1.0\n",
    }
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def fingerprint(**changes):
        for name, text in parts.items():
            (package / name).write_text(text + changes.get(name.rpartition("/")[2].removesuffix(".py"), ""))
        for name in [name for name in sys.modules if name.startswith("ownpackage")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return AuditedModule("net", importlib.import_module("ownpackage.nets.zoo").Net()).fingerprint

    first = fingerprint()
    assert fingerprint() == first
    assert (
        len({first, fingerprint(base="# other\n"), fingerprint(scale="SCALE = 2.0\n"), fingerprint(zoo="\n#\n")}) == 4
    )


def test_a_network_is_audited_in_evaluation_mode_whatever_mode_it_came_in():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.BatchNorm1d(12), nn.Linear(12, 3)).train()
    model = AuditedModule("net", network)
    model.probe((2, 2))
    images = torch.rand(4, 3, 2, 2)
    assert torch.equal(model.predict(images), model.predict(images))
    torch.testing.assert_close(model.predict(images)[:1], model.predict(images[:1]))
    assert not network.training


class Limited(ColorNet):
    """Has memory for so many images at once; 0: for none."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, images):
        if len(images) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(images)


def test_a_gpu_without_enough_memory_gets_smaller_batches():
    images, found = torch.rand(10, 3, 8, 8), {}
    limited = Limited(3)
    for network in (limited, ColorNet()):
        model = AuditedModule("net", network)
        model.probe((8, 8))
        found[network] = model.predict(images)
    torch.testing.assert_close(*found.values())


def test_a_gpu_without_memory_for_one_image_is_one_line():
    with pytest.raises(DeviceMemoryError) as caught:
        AuditedModule("net", Limited(0)).probe((8, 8))
    assert "\n" not in str(caught.value)
