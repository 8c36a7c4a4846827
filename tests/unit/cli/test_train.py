import dataclasses
import json
import sys
import types
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from asrnorm.cli.train import print_result, train
from asrnorm.core.config import content_hash, dump_config
from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError
from helpers import tiny_run
from helpers.fake_asrnorm import result
from helpers.finished_run import make_config
from helpers.tiny_run import tiny_config


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(dump_config(tiny_config(steps=3)))
    return str(path)


def call(*words):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(train)
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_config_trains_and_the_table_has_every_domain(config_file, tmp_path):
    done = call("--config", config_file, "--out", str(tmp_path / "a"))
    assert done.exit_code == 0
    assert {"plain", "dark", "noisy"} <= set(done.stdout.split())
    assert "average accuracy on 2 unseen domains" in done.stdout
    assert (tmp_path / "a" / "result.json").exists()
    assert done.stdout.splitlines()[-1] == f"run: {tmp_path / 'a'}"
    again = call("--config", str(tmp_path / "a" / "config.yaml"), "--out", str(tmp_path / "a"))
    assert again.stdout == done.stdout
    assert "nothing was trained" not in done.stderr
    assert "nothing was trained; --fresh starts over" in again.stderr


def test_a_recipe_beside_a_config_of_that_recipe_says_nothing_new(config_file):
    name = yaml.safe_load(Path(config_file).read_text())["recipe"]
    assert call(name, "--config", config_file, "--dry-run").stdout == call("--config", config_file, "--dry-run").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["folder.erm_asr", "--set", "suite.root=nowhere"], "nowhere: no such folder"),
        (["digits.erm_asr"], "asrnorm data fetch mnist"),
        (["digits_mini.erm_asr", "--set", "model=resnet18", "--set", "weights=none.pth"], "none.pth"),
    ],
)
def test_dry_run_tells_on_the_side_what_a_run_would_be_refused_for(words, told, tmp_path, monkeypatch):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = call(*words, "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("# hash ")
    (line,) = done.stderr.splitlines()
    assert line.startswith("note: here the run would not start: ")
    assert told in line


def test_dry_run_says_nothing_where_the_data_is_there(config_file):
    assert call("--config", config_file, "--dry-run").stderr == ""


def test_dry_run_prints_a_config_that_is_itself_valid_and_makes_nothing(config_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(
        "--config", config_file, "--dry-run", "--set", "optim.lr=1e-3", "--set", "method=toy_noise", "--seed", "4"
    )
    values = yaml.safe_load(done.stdout)
    assert (values["optim"]["lr"], values["method"]["name"], values["seed"]) == (1e-3, "toy_noise", 4)
    (tmp_path / "again.yaml").write_text(done.stdout)
    again = call("--config", str(tmp_path / "again.yaml"), "--dry-run")
    assert again.stdout == done.stdout
    assert not (tmp_path / "runs").exists()
    assert content_hash(tiny_config(steps=3)) not in done.stdout


def test_steps_device_and_data_are_short_for_their_settings(tmp_path):
    short = call("folder.erm_bn", "--dry-run", "--steps", "7", "--device", "cpu", "--data", str(tmp_path))
    settings = (f"suite.root={tmp_path}", "steps=7", "device=cpu")
    long = call("folder.erm_bn", "--dry-run", *(word for setting in settings for word in ("--set", setting)))
    assert short.stdout == long.stdout
    assert yaml.safe_load(short.stdout)["steps"] == 7


def test_json_has_the_result_or_the_config_of_a_dry_run(config_file, tmp_path):
    done = call("--config", config_file, "--out", str(tmp_path / "a"), "--json", "-")
    values = json.loads(done.stdout)
    assert values.pop("run") == str(tmp_path / "a")
    assert values == json.loads((tmp_path / "a" / "result.json").read_text())
    planned = json.loads(call("--config", config_file, "--dry-run", "--json", "-").stdout)
    assert planned["hash"] == values["config_hash"] == content_hash(tiny_config(steps=3))
    assert planned["config"]["steps"] == 3


def test_a_recipe_is_asked_for_with_scale_seed_and_domains(monkeypatch):
    asked = {}

    def recipe(name, **options):
        asked.update(name=name, **options)
        return tiny_config()

    module = types.ModuleType("asrnorm.recipes")
    module.recipe = recipe
    monkeypatch.setitem(sys.modules, "asrnorm.recipes", module)
    words = ["pacs.rsc_asr", "--scale", "smoke", "--seed", "3", "--source", "photo,art"]
    call(*words, "--target", "a", "--target", "b", "--dry-run")
    assert asked == {"name": "pacs.rsc_asr", "scale": "smoke", "seed": 3, "source": "photo,art", "target": "a,b"}


def test_modules_of_the_users_own_are_found_in_the_current_folder(config_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_method_for_train.py").write_text("LOADED = True\n")
    call("--config", config_file, "--import", "my_method_for_train", "--dry-run")
    assert sys.modules.pop("my_method_for_train").LOADED


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give a recipe"),
        (("x.y", "--config", "FILE"), "--config replaces a recipe"),
        (("--config", "FILE", "--set", "steps"), "name=value"),
        (("--config", "FILE", "--source", "a", "--set", "suite.source=b"), "--set suite.source=b contradicts --source"),
        (("--config", "FILE", "--steps", "3", "--set", "steps=4"), "--set steps=4 contradicts --steps"),
        (("digits.erm_bn", "--data", "x", "--set", "suite.root=y"), "--set suite.root=y contradicts --data"),
        (("--config", "."), "a folder; give config.yaml"),
    ],
)
def test_wrong_calls_are_refused(words, message, config_file):
    done = call(*(config_file if word == "FILE" else word for word in words))
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())


def test_names_that_do_not_exist_are_answered(config_file):
    with pytest.raises(UnknownNameError, match="did you mean 'steps'"):
        call("--config", config_file, "--set", "step=3", "--dry-run")
    with pytest.raises(UnknownNameError, match="did you mean 'erm'"):
        call("--config", config_file, "--set", "method=ermm", "--dry-run")
    with pytest.raises(UnknownNameError, match="no such module"):
        call("--config", config_file, "--import", "no_such_module_here")
    with pytest.raises(InputError, match="no such config"):
        call("--config", "nowhere.yaml")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("method.margin=abc", "must be float"),
        ("norm.statistics=foo", "statistics must be"),
        ("norm.eps=-1", "eps must be at least 0"),
        ("suite.subset=foo", "subset"),
        ("calibrate=3", "calibrate needs a pretrained network"),
        ("selection=oracle", "selection=oracle chooses among evaluations"),
    ],
)
def test_values_that_cannot_run_are_wrong_calls_before_anything_is_done(value, message):
    name = "pacs.rsc_bn" if value.startswith("method") else "digits.erm_asr"
    with pytest.raises((WrongCallError, UnknownNameError), match=message):
        call(name, "--set", value, "--dry-run")
    assert call(name, "--dry-run").exit_code == 0


def test_other_processes_print_nothing(config_file, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert call("--config", config_file, "--out", str(tmp_path / "a")).stdout == ""


@pytest.mark.parametrize(
    ("field", "place"),
    [
        ("seed", "--seed"),
        ("scale", "--scale"),
        ("source", "--source"),
        ("target", "--target"),
        ("name", "first argument"),
    ],
)
def test_what_has_an_option_of_its_own_is_not_set(field, place):
    done = call("digits_mini.erm_asr", "--dry-run", "--set", f"{field}=3")
    assert done.exit_code == 2
    assert place in done.output


@pytest.mark.parametrize(("selection", "said"), [("last", False), ("source-val", True)])
def test_a_model_that_was_chosen_is_told_with_its_step(capsys, selection, said):
    print_result(dataclasses.replace(result(make_config()), selection=selection, steps=1200))
    text = capsys.readouterr().out
    assert ("chosen" in text) == ("chosen by source-val at step 1,200" in text) == said
