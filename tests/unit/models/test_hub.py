"""Networks as folders and repositories of the Hugging Face Hub."""

import json
import sys
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import asrnorm
from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.models import hub


@pytest.fixture
def library():
    return pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")


def make_foreign():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def make_converted():
    model = asrnorm.create_model("wrn_16_4", num_classes=3)
    return asrnorm.convert(model, "asr", layers="first", gated_rescale=True)


def test_a_network_comes_back_from_a_local_folder_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model = make_converted().train()
    model.save_pretrained(tmp_path / "net")
    loaded = asrnorm.from_pretrained(tmp_path / "net")
    assert not loaded.training
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(images), model.eval()(images))
    config = json.loads((tmp_path / "net" / "config.json").read_text())
    assert config["model"]["name"] == "wrn_16_4"
    assert config["conversion"][0]["norm"] == "asr"


def test_a_foreign_network_is_given_and_converted_alike(tmp_path):
    model = asrnorm.convert(make_foreign(), "asr")
    asrnorm.save_pretrained(model, tmp_path)
    assert "model=Sequential(...)" in (tmp_path / "README.md").read_text()
    with pytest.raises(InputError, match="give it"):
        asrnorm.from_pretrained(tmp_path)
    loaded = asrnorm.from_pretrained(tmp_path, model=make_foreign())
    images = torch.rand(2, 3, 9, 9)
    assert torch.equal(loaded(images), model.eval()(images))


def test_a_card_that_is_there_stays_and_the_first_has_metadata(tmp_path):
    asrnorm.save_pretrained(make_converted(), tmp_path)
    head = (tmp_path / "README.md").read_text().split("---\n")[1]
    assert yaml.safe_load(head)["library_name"] == "asrnorm"
    (tmp_path / "README.md").write_text("mine")
    asrnorm.save_pretrained(make_converted(), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_without_weights_and_a_missing_library_are_one_line(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"model\.safetensors"):
        asrnorm.from_pretrained(tmp_path)
    hub._hub_class.cache_clear()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for missing in (tmp_path / "nowhere", "nowhere", "../nowhere", "net.safetensors"):
        with pytest.raises(InputError, match="no such folder"):
            asrnorm.from_pretrained(missing)
    for call in (lambda: asrnorm.from_pretrained("me/net"), lambda: make_converted().push_to_hub("me/net")):
        with pytest.raises(MissingDependencyError, match=r"asrnorm\[hub\]"):
            call()


@pytest.mark.usefixtures("library")
def test_the_library_writes_the_same_files(tmp_path):
    model = make_converted().eval()
    model.save_pretrained(tmp_path / "plain")
    model.save_pretrained(tmp_path / "library", push_to_hub=False)
    names = {"model.safetensors", "config.json", "README.md"}
    for name in names:
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "library" / name).read_bytes()
    assert {path.name for path in (tmp_path / "library").iterdir()} == names
    images = torch.rand(1, 3, 32, 32)
    assert torch.equal(type(model).from_pretrained(tmp_path / "library")(images), model(images))


def test_push_to_hub_uploads_the_folder_and_a_repository_is_loaded_from(tmp_path, monkeypatch, library):
    uploaded = tmp_path / "uploaded"

    class Api:
        def __init__(self, **_):
            pass

        def create_repo(self, repo_id, **_):
            return library.RepoUrl(f"https://huggingface.co/{repo_id}")

        def upload_folder(self, *, repo_id, folder_path, **_):
            Path(folder_path).rename(uploaded)
            return f"https://huggingface.co/{repo_id}/commit/1"

    def download(repo_id, filename, **_):
        assert repo_id == "me/net"
        return str(uploaded / filename)

    mixin = sys.modules[library.ModelHubMixin.__module__]
    for module in (library, mixin):
        monkeypatch.setattr(module, "HfApi", Api)
        monkeypatch.setattr(module, "hf_hub_download", download)
    hub._hub_class.cache_clear()
    try:
        model = make_converted().eval()
        assert model.push_to_hub("me/net").endswith("/commit/1")
        images = torch.rand(1, 3, 32, 32)
        assert torch.equal(asrnorm.from_pretrained("me/net")(images), model(images))
    finally:
        hub._hub_class.cache_clear()
