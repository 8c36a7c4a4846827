"""What a run needs around it: images that can be read, a device, targets to choose by, its own model."""

import dataclasses
import fcntl
import json
import shutil
import threading
from importlib import import_module

import pytest
from PIL import Image

from asrnorm.core.errors import InputError, InterruptedRunError
from asrnorm.core.results import read_result
from asrnorm.studies.store import read_origin
from asrnorm.training import load_run, run
from helpers.published import write_folder
from helpers.tiny_run import Choice, ToySuite, logged_steps, tiny_config

run_module = import_module("asrnorm.training.run")  # the package has a function of that name


def test_a_damaged_image_of_a_target_is_named_before_the_first_step(tmp_path, monkeypatch):
    write_folder(tmp_path / "own", domains=("day", "dusk"))
    (tmp_path / "own" / "dusk" / "cat" / "0.png").write_bytes(b"no")
    monkeypatch.setattr(run_module, "_train", lambda *arguments: pytest.fail("training began"))
    args = {"root": str(tmp_path / "own"), "source": "day", "size": 8, "broken": "refuse"}
    suite = Choice(name="folder", args=args)
    with pytest.raises(InputError, match=r"dusk/cat/0\.png: cannot be read as an image"):
        run(tiny_config(suite=suite), tmp_path / "a")


def test_targets_of_other_suites_are_not_opened_before_the_first_step(tmp_path, monkeypatch):
    def begin(*arguments):
        raise InterruptedRunError("training began")

    monkeypatch.setattr(run_module, "_train", begin)
    monkeypatch.setattr(ToySuite, "load_target", lambda suite, name: pytest.fail("a target was opened"))
    with pytest.raises(InterruptedRunError, match="training began"):
        run(tiny_config(), tmp_path / "a")


def test_training_on_a_device_without_float64_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="float64, which Apple's GPUs do not have; set device=cpu"):
        run(dataclasses.replace(tiny_config(), device="mps"), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_model_that_was_lost_is_made_again_of_the_last_checkpoint(tmp_path):
    first = run(tiny_config(), out=tmp_path / "a")
    bytes_before, steps = (tmp_path / "a" / "model.safetensors").read_bytes(), logged_steps(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").unlink()
    again = run(tiny_config(), out=tmp_path / "a")
    assert dataclasses.replace(again, wall_seconds=0) == dataclasses.replace(first, wall_seconds=0)
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == bytes_before
    assert logged_steps(tmp_path / "a") == steps


def test_the_targets_cannot_choose_where_there_are_none(tmp_path):
    write_folder(tmp_path / "own", domains=("here",))
    suite = Choice(name="folder", args={"root": str(tmp_path / "own"), "source": "here", "size": 8})
    config = tiny_config(suite=suite, model=Choice(name="wrn_16_4"), steps=2, evaluate_every=1)
    with pytest.raises(InputError, match="no target for selection=oracle"):
        run(dataclasses.replace(config, selection="oracle"), out=tmp_path / "a")
    result = run(config, out=tmp_path / "b")
    assert (result.domains, result.source.name) == ((), "here")


def test_attacks_have_the_seed_of_the_run_and_keep_to_the_limit(tmp_path, monkeypatch):
    noted = []

    def score_attacks(model, data, **settings):
        noted.append((len(data), settings["seed"], settings["batch_size"]))
        return {"fgsm-8": 0.5}

    monkeypatch.setattr("asrnorm.evaluation.attacks.score_attacks", score_attacks)
    result = run(tiny_config(steps=1, seed=3, adversarial=True, evaluate_limit=7), tmp_path)
    assert noted == [(7, 3, 16)]
    assert result.adversarial == {"fgsm-8": 0.5}
    assert [domain.num_samples for domain in (result.source, *result.domains)] == [7, 7, 7]


def test_a_damaged_result_is_made_again_from_the_checkpoint(tmp_path, caplog):
    whole = run(tiny_config(), tmp_path / "a")
    (tmp_path / "a" / "result.json").write_text("")
    again = run(tiny_config(), tmp_path / "a")
    assert "it is made again from the last checkpoint" in caplog.text
    assert dataclasses.replace(again, wall_seconds=0) == dataclasses.replace(whole, wall_seconds=0)
    assert read_result(tmp_path / "a" / "result.json") == again


def test_a_damaged_result_without_a_checkpoint_is_one_line_with_the_way_out(tmp_path):
    run(tiny_config(steps=2), tmp_path / "a")
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    (tmp_path / "a" / "result.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"result\.json: damaged .*; start over with --fresh"):
        run(tiny_config(steps=2), tmp_path / "a")


@pytest.mark.parametrize(
    "text", ["{", "null", '{"step": 99, "seconds": 1}', '{"step": -1, "seconds": 1}', '{"step": "8"}']
)
def test_a_damaged_choice_is_made_again(tmp_path, text):
    suite = Choice(name="toy", args={"validation": False})
    config = tiny_config(suite=suite, selection="source-val", evaluate_every=8)
    whole = run(config, tmp_path / "a")
    for name in ("result.json", "model.safetensors"):
        (tmp_path / "a" / name).unlink()
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    (tmp_path / "a" / "choice" / "choice.json").write_text(text)
    again = run(config, tmp_path / "a")
    assert dataclasses.replace(again, wall_seconds=0) == dataclasses.replace(whole, wall_seconds=0)


def test_images_that_replace_those_a_run_started_with_are_refused(tmp_path):
    write_folder(tmp_path / "own", domains=("day", "dusk"))
    suite = Choice(name="folder", args={"root": str(tmp_path / "own"), "source": "day", "size": 8})
    run(tiny_config(suite=suite, steps=2), tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    run(tiny_config(suite=suite, steps=2), tmp_path / "a")
    (tmp_path / "a" / "result.json").unlink()
    Image.new("RGB", (9, 7)).save(tmp_path / "own" / "day" / "cat" / "0.png")
    with pytest.raises(InputError, match="with the same names, but other files"):
        run(tiny_config(suite=suite, steps=2), tmp_path / "a")


def test_the_environment_names_the_test_images_that_were_scored(tmp_path, monkeypatch):
    told = iter(["none yet", "generated, seed 0"])  # at the start, and when all is scored
    monkeypatch.setattr(ToySuite, "edition", property(lambda self: next(told)))
    run(tiny_config(), tmp_path / "a")
    environment = json.loads((tmp_path / "a" / "env.json").read_text())
    assert environment["edition"] == "none yet"
    assert environment["resumed"] == [{"edition": "generated, seed 0"}]
    assert read_origin(tmp_path / "a" / "env.json")["edition"] == "generated, seed 0"


def test_two_processes_do_not_work_on_one_run(tmp_path):
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another process"):
            run(tiny_config(steps=2), tmp_path / "a")
    run(tiny_config(steps=2), tmp_path / "a")


def test_a_run_that_is_looked_at_for_a_moment_starts_all_the_same(tmp_path):
    (tmp_path / "a").mkdir()
    with (tmp_path / "a" / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        threading.Timer(0.1, fcntl.flock, (lock, fcntl.LOCK_UN)).start()
        assert run(tiny_config(steps=2), tmp_path / "a").steps == 2


def test_a_finished_run_is_opened_though_no_run_would_start_so_today(tmp_path):
    run(tiny_config(steps=2), tmp_path / "a")
    path = tmp_path / "a" / "config.yaml"
    path.write_text(path.read_text().replace("selection: last", "selection: source-val"))
    (tmp_path / "a" / "result.json").unlink()  # it would notice the edit
    loaded = load_run(tmp_path / "a", device="cpu")
    assert (loaded.config.selection, loaded.config.evaluate_every) == ("source-val", 0)
    with pytest.raises(InputError, match="evaluate_every=0 makes none"):
        run(loaded.config, tmp_path / "b")
