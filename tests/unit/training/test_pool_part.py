"""Grown images lie on the disk as long as a run may have to go on, and no longer."""

from importlib import import_module

import pytest

from asrnorm.core.results import read_result
from asrnorm.training import run
from helpers.tiny_run import Choice, model_bytes, tiny_config

run_module = import_module("asrnorm.training.run")  # the package has a function of that name


def stop(*_):
    raise KeyboardInterrupt


def test_grown_images_are_removed_once_the_result_is_there(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    seen = []
    write = run_module._save_result

    def watched(path, result):
        seen.extend((tmp_path / "a" / "pool").iterdir())
        write(path, result)

    monkeypatch.setattr(run_module, "_save_result", watched)
    run(config, tmp_path / "a")
    assert len(seen) == 2
    assert not (tmp_path / "a" / "pool").exists()
    assert {path.name for path in (tmp_path / "a" / "checkpoints").iterdir()} == {"last.pt", "previous.pt"}


def test_a_kill_before_the_result_leaves_the_grown_images_to_go_on_from(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    whole = run(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "_save_result", stop)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "a")
    assert len(list((tmp_path / "a" / "pool").iterdir())) == 2
    again = run(config, tmp_path / "a")
    assert (again.domains, model_bytes(tmp_path / "a")) == (whole.domains, model_bytes(tmp_path / "whole"))


def test_a_kill_between_the_result_and_the_removal_leaves_a_run_that_is_done(tmp_path, monkeypatch):
    config = tiny_config(method=Choice(name="toy_grow"))
    with monkeypatch.context() as patch:
        patch.setattr(run_module.RunFolder, "drop_pool", stop)
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "a")
    next((tmp_path / "a" / "pool").iterdir()).unlink()  # some are gone already
    monkeypatch.setattr(run_module, "_work", None)  # what is done is not done again
    assert run(config, tmp_path / "a") == read_result(tmp_path / "a" / "result.json")
    assert not (tmp_path / "a" / "pool").exists()


def test_a_first_pass_that_has_chosen_keeps_no_grown_images(tmp_path):
    suite = Choice(name="toy", args={"validation": False})
    config = tiny_config(method=Choice(name="toy_grow"), suite=suite, selection="source-val", evaluate_every=10)
    run(config, tmp_path / "a")
    assert (tmp_path / "a" / "choice" / "choice.json").is_file()
    assert not (tmp_path / "a" / "choice" / "pool").exists()
