"""Damage to the folder of a finished run is noticed and named; a link in it overwrites nothing."""

import json
import logging

import pytest

from asrnorm.core.errors import InputError
from asrnorm.core.results import read_result
from asrnorm.training import load_run, run
from helpers.tiny_run import Choice, model_bytes, tiny_config


@pytest.fixture
def done(tmp_path):
    """The folder of a finished run."""
    run(tiny_config(steps=4, norm=Choice(name="asr")), tmp_path / "a")
    return tmp_path / "a"


def again(folder):
    return run(tiny_config(steps=4, norm=Choice(name="asr")), folder)


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.write_bytes(data)


def without_checksums(folder):
    """Turn a result into one from before there were checksums."""
    path = folder / "result.json"
    values = {name: value for name, value in json.loads(path.read_text()).items() if not name.endswith("_sha256")}
    path.write_text(json.dumps(values))


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "from before checksums"])
def test_damaged_weights_are_named_and_made_again(done, caplog, is_old):
    before, result = model_bytes(done), read_result(done / "result.json")
    if is_old:
        without_checksums(done)
    flip(done / "model.safetensors", -9)
    with pytest.raises(InputError, match=r"model\.safetensors: damaged.*asrnorm train makes it again"):
        load_run(done)
    with caplog.at_level(logging.WARNING):
        assert again(done).domains == result.domains
    assert "model.safetensors: damaged" in caplog.text
    assert model_bytes(done) == before
    load_run(done)


def test_weights_of_another_run_are_noticed(done, tmp_path):
    run(tiny_config(steps=4, norm=Choice(name="asr"), seed=1), tmp_path / "b")
    (done / "model.safetensors").write_bytes(model_bytes(tmp_path / "b"))
    with pytest.raises(InputError, match="damaged or replaced"):
        load_run(done)


def test_damaged_weights_without_a_checkpoint_name_the_way_out(done):
    for path in (done / "checkpoints").iterdir():
        path.unlink()
    flip(done / "model.safetensors", -9)
    with pytest.raises(InputError, match="--fresh"):
        again(done)


@pytest.mark.parametrize(
    "edit", [("name: asr\n  args: {}", "name: asr\n  args:\n    eps: 0.1"), ("float32", "float64")]
)
def test_an_edited_config_that_changes_numbers_is_noticed(done, edit):
    text = (done / "config.yaml").read_text()
    assert text.replace(*edit) != text
    (done / "config.yaml").write_text(text.replace(*edit))
    with pytest.raises(InputError, match=r"config\.yaml: damaged or edited.*--set"):
        load_run(done)


def test_an_edit_that_changes_no_number_passes(done):
    with (done / "config.yaml").open("a") as file:
        file.write("# on another machine\n")
    text = (done / "config.yaml").read_text()
    (done / "config.yaml").write_text(text.replace("log_every: 2", "log_every: 3"))
    load_run(done)


def test_a_damaged_result_is_named_and_made_again(done, caplog):
    before = read_result(done / "result.json")
    path = done / "result.json"
    path.write_text(path.read_text().replace('"steps": 4', '"steps": 5'))
    with pytest.raises(InputError, match=r"result\.json: damaged or edited"):
        read_result(path)
    with caplog.at_level(logging.WARNING):
        load_run(done)
    assert "result.json: damaged" in caplog.text
    assert again(done).domains == before.domains
    assert read_result(path).steps == 4


NAMES = ("config.yaml", "env.json", "log.jsonl", "model.safetensors", "result.json")


@pytest.mark.parametrize("name", [*NAMES, "checkpoints/last.pt", ".config.yaml.1.tmp.yaml"])
def test_a_link_in_a_run_folder_overwrites_nothing(tmp_path, name):
    victim, link = tmp_path / "mine.txt", tmp_path / "a" / name
    victim.write_text("recipe: mine\nsuite: mine\n")
    link.parent.mkdir(parents=True)
    link.symlink_to(victim)
    config = tiny_config(steps=2)
    if name in ("config.yaml", "checkpoints/last.pt", "result.json"):
        with pytest.raises(InputError):
            run(config, tmp_path / "a")
    run(config, tmp_path / "a", fresh=True)
    assert victim.read_text() == "recipe: mine\nsuite: mine\n"
    assert not (tmp_path / "a" / name).is_symlink()


def test_a_linked_lock_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".lock").symlink_to(tmp_path / "absent")
    with pytest.raises(OSError, match="symbolic link"):
        run(tiny_config(steps=2), tmp_path / "a")
    assert not (tmp_path / "absent").exists()


def test_a_linked_run_folder_is_read(done, tmp_path):
    (tmp_path / "link").symlink_to(done)
    assert load_run(tmp_path / "link").config == load_run(done).config
    assert again(tmp_path / "link") == read_result(done / "result.json")
