"""A torch-export file gives the network's logits, with its own batch size and gradients."""

import hashlib
import json
import logging
import zipfile

import pytest
import torch
from torch import nn

from asrnorm.audit.form import Form
from asrnorm.audit.load import load_subject, normalizes_itself
from asrnorm.core.errors import InputError
from helpers.audited import ColorNet


def export(path, network=None, batch=None, side=16):
    dynamic = None if batch else ({0: torch.export.Dim("n", min=1, max=1024)},)
    network = (network or ColorNet()).eval()
    program = torch.export.export(network, (torch.rand(batch or 4, 3, side, side),), dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return network


@pytest.mark.parametrize("batch", [None, 4])
def test_logits_and_gradients_are_those_of_the_network(tmp_path, batch):
    network = export(tmp_path / "net.pt2", batch=batch)
    subject = load_subject(str(tmp_path / "net.pt2"), device="cpu")
    subject.probe((16, 16))
    assert (subject.num_classes, subject.form.batch, subject.native_size) == (3, batch, (16, 16))
    images = torch.rand(6, 3, 16, 16)
    assert torch.allclose(subject.predict(images), network(images), atol=1e-6)
    assert subject.has_gradients
    images.requires_grad_()
    (gradient,) = torch.autograd.grad(subject.module(images).sum(), images)
    (expected,) = torch.autograd.grad(network(images).sum(), images)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_the_card_beside_a_file_says_what_its_outputs_are_called(tmp_path):
    export(tmp_path / "net.pt2")
    digest = hashlib.sha256((tmp_path / "net.pt2").read_bytes()).hexdigest()
    found = []
    for card in ("{", {"sha256": digest, "classes": ["a", "b", "c"]}, {"sha256": "of another", "classes": ["a", "b"]}):
        text = card if isinstance(card, str) else json.dumps(card)
        (tmp_path / "net.pt2.json").write_text(text)
        found.append(load_subject(str(tmp_path / "net.pt2"), device="cpu").class_names)
    (tmp_path / "net.pt2.json").unlink()
    assert load_subject(str(tmp_path / "net.pt2"), device="cpu").class_names is None
    assert found == [None, ("a", "b", "c"), None]


def test_a_file_whose_card_has_the_normalization_inside_gets_no_other(tmp_path):
    export(tmp_path / "net.pt2")
    file, form = str(tmp_path / "net.pt2"), Form(mean=(0.5, 0.5, 0.5), std=(0.1, 0.1, 0.1))
    images = torch.rand(2, 3, 16, 16)

    def predict(**options):
        subject = load_subject(file, device="cpu", **options)
        subject.probe((16, 16))
        return subject.predict(images)

    plain, given = predict(), predict(form=form)
    assert not torch.allclose(plain, given), "without a card it is normalized as asked"
    assert not normalizes_itself(file)
    digest = hashlib.sha256((tmp_path / "net.pt2").read_bytes()).hexdigest()
    card = {"sha256": digest, "classes": ["a", "b", "c"], "input": {"normalization": "inside"}}
    (tmp_path / "net.pt2.json").write_text(json.dumps(card))
    assert normalizes_itself(file)
    assert torch.equal(predict(form=form), plain)


def test_images_of_another_size_are_resized(tmp_path):
    export(tmp_path / "net.pt2")
    subject = load_subject(str(tmp_path / "net.pt2"), device="cpu")
    subject.probe((32, 32))
    assert subject.predict(torch.rand(2, 3, 32, 32)).shape == (2, 3)


def test_a_file_without_gradients_says_so(tmp_path):
    class Detached(nn.Module):
        def forward(self, images):
            with torch.no_grad():
                return images.mean((2, 3))

    export(tmp_path / "net.pt2", Detached())
    subject = load_subject(str(tmp_path / "net.pt2"), device="cpu")
    subject.probe((16, 16))
    assert subject.no_gradients == "the file has no gradients"


def test_what_is_no_such_file_is_one_line(tmp_path):
    (tmp_path / "net.pt2").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"net.pt2: not a file of torch.export that this torch can read"):
        load_subject(str(tmp_path / "net.pt2"))


def test_torch_is_silent_about_a_foreign_archive(tmp_path, recwarn):
    with zipfile.ZipFile(tmp_path / "net.pt2", "w") as archive:
        archive.writestr("a.txt", "x")
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    log = logging.getLogger("torch.export")
    before = log.level
    log.addHandler(handler)
    try:
        with pytest.raises(InputError, match=r"that this torch can read"):
            load_subject(str(tmp_path / "net.pt2"), device="cpu")
    finally:
        log.removeHandler(handler)
    assert not records
    assert not recwarn.list
    assert log.level == before


def test_the_fingerprint_follows_constants_of_the_program(tmp_path):
    class Shifted(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.network = ColorNet()
            self.register_buffer("shift", torch.tensor(shift), persistent=False)

        def forward(self, x):
            return self.network(x - self.shift)

    found = []
    for number, shift in enumerate((0.1, 0.1, 0.9)):
        export(tmp_path / f"{number}.pt2", Shifted(shift))
        found.append(load_subject(str(tmp_path / f"{number}.pt2"), device="cpu").fingerprint)
    assert found[0] == found[1] != found[2]
