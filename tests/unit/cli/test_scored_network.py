"""`asrnorm evaluate --set confine=N`: a finished run scored with its learned means confined, or set free again."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm import recipe
from asrnorm.cli.evaluate import evaluate
from asrnorm.cli.evaluation_inputs import choose_suite
from asrnorm.core.config import Choice
from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import ConversionError, InputError
from asrnorm.core.results import read_result
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import confine_to_source
from asrnorm.training.run import load_run, run
from asrnorm.training.selection import validate

app = typer.Typer()
app.command()(evaluate)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"})


def scores(folder, *words):
    file = folder / "scores.json"
    result = call(folder, "--json", file, *words)
    assert result.exit_code == 0, result.output
    return json.loads(file.read_text())


def make_photos(folder):
    """Two domains of two classes, noise of one brightness each."""
    generator = np.random.default_rng(0)
    for place, label, number in itertools.product(("day", "night"), ("dark", "light"), range(12)):
        path = folder / place / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 128, (32, 32, 3)) + 127 * (label == "light")
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose learned means lie far from the images' own."""
    folder = tmp_path_factory.mktemp("runs") / "asr"
    run(recipe("digits_mini.erm_asr", scale="smoke"), folder)
    state = read_state(folder / "model.safetensors")
    for name, value in state.items():
        if "mu_decoder.weight" in name:
            state[name] = value * 200
    (folder / "model.safetensors").write_bytes(pack_state(state))
    return folder


def test_confined_and_free_score_differently_and_the_weights_stay(trained):
    before = (trained / "model.safetensors").read_bytes()
    free, confined = scores(trained), scores(trained, "--set", "confine=30")
    nlls = [{domain["name"]: domain["nll"] for domain in found["domains"]} for found in (free, confined)]
    assert nlls[0].keys() == nlls[1].keys()
    assert nlls[0] != nlls[1]
    assert (trained / "model.safetensors").read_bytes() == before
    assert all(module.limits is None for module in load_run(trained).model.modules() if hasattr(module, "limits"))


def test_kept_under_a_name_it_lies_with_the_run(trained):
    assert call(trained, "--set", "confine=30", "--as", "confined-30").exit_code == 0
    kept = read_result(trained / "evaluations" / "confined-30.json")
    assert kept.config_hash != read_result(trained / "result.json").config_hash
    assert kept.recipe == "digits_mini.erm_asr"


def test_what_limits_do_to_validation_images_of_the_source_is_told_and_kept(trained):
    """A choice that looks at no target: it is the measure of the trainer, of the changed network."""
    result = call(trained, "--set", "confine=30", "--as", "told", "--json", trained / "told.json")
    kept = read_result(trained / "evaluations" / "told.json").validation
    loaded = load_run(trained)
    config = replace(loaded.config, confine=30)
    confine_to_source(loaded.model, loaded.suite, config)
    assert kept == validate(loaded.model, loaded.suite, config, loaded.device, ALONE)
    assert kept.keys() == {"source-val", "shifted-val"}
    assert kept != read_result(trained / "result.json").validation
    assert f"shifted-val accuracy, on held-out images of the source: {100 * kept['shifted-val']:.2f} %" in result.output
    told = json.loads((trained / "told.json").read_text())
    assert (told["validation"], told["confine"]) == (kept, 30)
    assert "source-val" not in call(trained).output


def test_a_confined_run_is_scored_free_where_that_is_asked_for(trained, tmp_path):
    config = replace(recipe("digits_mini.erm_asr", scale="smoke"), confine=30)
    run(config, tmp_path / "confined")
    state = read_state(tmp_path / "confined" / "model.safetensors")
    limits = {name: torch.zeros_like(value) for name, value in state.items() if "shift_" in name}
    assert len(limits) == 4
    (tmp_path / "confined" / "model.safetensors").write_bytes(pack_state({**state, **limits}))
    assert scores(tmp_path / "confined")["source"] != scores(tmp_path / "confined", "--set", "confine=0")["source"]


def test_what_is_kept_says_what_scored_it(trained):
    call(trained, "--set", "confine=30", "--as", "scored")
    origin = read_result(trained / "evaluations" / "scored.json").origin
    assert origin["scored"].endswith(" on cpu")


def train_on(photos, folder, **changes):
    suite = Choice(name="folder", args={"root": str(photos), "source": "day", "size": 32})
    run(replace(recipe("digits_mini.erm_asr", scale="smoke"), suite=suite, **changes), folder)


def test_own_images_are_read_at_the_size_of_a_run_on_others(tmp_path):
    run(recipe("digits_mini.erm_bn", scale="smoke"), tmp_path / "run")
    loaded = load_run(tmp_path / "run")
    for name, number in itertools.product(loaded.classes, range(3)):
        place = tmp_path / "photos" / "day" / name
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((48, 48, 3), 20 * number, np.uint8)).save(place / f"{number}.png")
    photos = {"root": str(tmp_path / "photos"), "source": "day"}
    for args, side in ((photos, 32), ({**photos, "size": 40}, 40)):
        config = replace(loaded.config, suite=Choice(name="folder", args=args))
        assert choose_suite(tmp_path / "run", loaded, config).image_size == (side, side)


def test_source_images_may_have_moved_but_not_changed(tmp_path):
    train_on(make_photos(tmp_path / "photos"), tmp_path / "run")
    moved = (tmp_path / "photos").rename(tmp_path / "moved")
    words = ("--set", f"suite.root={moved}", "--set", "confine=8")
    assert call(tmp_path / "run", *words).exit_code == 0
    next((moved / "day").rglob("*.png")).unlink()
    result = call(tmp_path / "run", *words)
    assert isinstance(result.exception, InputError)
    assert "images of the source" in str(result.exception)


def test_limits_are_lifted_for_new_places_without_the_source(tmp_path):
    photos = make_photos(tmp_path / "photos")
    train_on(photos, tmp_path / "run", confine=8)
    night = (photos / "night").rename(tmp_path / "night")
    photos.rename(tmp_path / "gone")
    assert call(tmp_path / "run", "--data", night, "--set", "confine=0").exit_code == 0
    result = call(tmp_path / "run", "--data", night, "--set", "confine=4")
    assert isinstance(result.exception, InputError)


def test_what_learns_no_mean_cannot_be_confined(tmp_path):
    run(recipe("digits_mini.erm_none", scale="smoke"), tmp_path / "none")
    result = call(tmp_path / "none", "--set", "confine=30")
    assert isinstance(result.exception, ConversionError)
    assert "no layer that learns its standardization" in str(result.exception)
