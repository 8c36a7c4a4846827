"""A finished run as a folder for the Hugging Face Hub."""

import json
from dataclasses import replace

import pytest
import torch
import yaml

import asrnorm
from asrnorm.cli.main import main
from asrnorm.core.config import Choice
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result
from asrnorm.exporting import export_hub
from asrnorm.exporting.hub import without_paths
from asrnorm.recipes import recipe
from asrnorm.training import load_run, run
from helpers.tiny_run import pretrained_config, write_weights


def test_the_folder_holds_the_network_and_a_card_with_scores_seed_and_commit(folder_of, tmp_path, capsys):
    folder = folder_of()
    assert main(["export", str(folder), "--format", "hub"]) == 0, capsys.readouterr().err
    out = folder / "export" / "hub"
    loaded = load_run(folder, device="cpu")
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(asrnorm.from_pretrained(out)(images), loaded.model(images))
    result, card = read_result(folder / "result.json"), (out / "README.md").read_text()
    for domain in (result.source, *result.domains):
        assert f"| {domain.name} |" in card
        assert f"{domain.accuracy:.4f} | {domain.brier:.4f}" in card
    assert all(text in card for text in (result.commit, result.config_hash, "| seed | 0 |", "from_pretrained"))
    index = yaml.safe_load(card.split("---\n")[1])["model-index"][0]["results"]
    assert [entry["metrics"][0]["value"] for entry in index[1:]] == [domain.accuracy for domain in result.domains]
    config = json.loads((out / "config.json").read_text())
    assert config["classes"] == list(loaded.classes)
    assert config["run"]["optim"]["lr"] == loaded.config.optim.lr


def test_a_converted_pretrained_network_comes_back_without_paths_of_this_machine(tmp_path):
    weights = write_weights(tmp_path / "weights.pt")
    run(pretrained_config(weights, steps=3, suite=Choice(name="toy", args={"root": str(tmp_path)})), tmp_path / "run")
    loaded = load_run(tmp_path / "run", device="cpu")
    export_hub(loaded, tmp_path / "run", tmp_path / "hub")
    images = torch.rand(4, 3, 8, 8)
    assert torch.equal(asrnorm.from_pretrained(tmp_path / "hub")(images), loaded.model(images))
    assert not [path for path in (tmp_path / "hub").iterdir() if str(tmp_path).encode() in path.read_bytes()]


def test_a_shared_config_has_no_path_of_this_machine():
    args = {"root": "/home/me/photos", "aliases": "/home/me/classes.yaml", "source": "day"}
    config = replace(recipe("folder.erm_bn"), suite=Choice(name="folder", args=args), weights="/home/me/net.pt")
    shared = without_paths(config)
    assert shared.suite.args == {"source": "day"}
    assert shared.weights == "net.pt"


def test_names_cannot_break_the_card(folder_of, monkeypatch):
    folder = folder_of()
    values = json.loads((folder / "result.json").read_text())
    values["domains"][0]["name"] = "a|b<script>\nc"
    del values["values_sha256"]
    (folder / "result.json").write_text(json.dumps(values))
    export_hub(load_run(folder, device="cpu"), folder, folder / "export" / "hub")
    card = (folder / "export" / "hub" / "README.md").read_text()
    assert "| a\\|b&lt;script> c | unseen |" in card
    assert "<script>" not in card.split("---\n", 2)[2]


def test_a_run_without_a_result_and_options_of_files_are_refused(folder_of, capsys):
    folder = folder_of()
    assert main(["export", str(folder), "--format", "hub", "--size", "8x8"]) == 2
    loaded = load_run(folder, device="cpu")
    (folder / "result.json").unlink()
    with pytest.raises(InputError):
        export_hub(loaded, folder, folder / "hub")
    assert not (folder / "hub").exists()
