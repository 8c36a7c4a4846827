"""Which network and which images asrnorm evaluate scores: none that were trained on, and none that cannot be read."""

import itertools
import json
import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm import evaluation, recipe
from asrnorm.cli.evaluate import evaluate
from asrnorm.cli.evaluation_inputs import check_split, choose_suite
from asrnorm.core.config import Choice
from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import ConversionError, InputError, UnknownNameError, WrongCallError
from asrnorm.core.files import file_sha256
from asrnorm.core.results import read_result, seal, write_result
from asrnorm.data import SUITES
from asrnorm.evaluation import score
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import confine_to_source
from asrnorm.training.run import load_run, run
from asrnorm.training.selection import validate
from helpers.finished_run import install_run
from helpers.toy_suite import ToySuite

app = typer.Typer()
app.command()(evaluate)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"})


def test_new_domains_are_scored_without_the_source(tmp_path, monkeypatch):
    class Gone(ToySuite):
        def load_source_test(self):
            raise AssertionError("the source is not looked at")

    run, folder = install_run(monkeypatch, tmp_path / "run", Gone()), tmp_path / "run"
    data = ToySuite().source_test
    for row, (pixels, label) in enumerate(zip(data.images, data.labels, strict=True)):
        for domain in ("north", "south") if row else ("north",):
            path = tmp_path / "new" / domain / run.classes[label] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert result.exit_code == 0, result.output
    values = json.loads((tmp_path / "scores.json").read_text())
    whole = score(run.model, data, name="north")
    assert [(domain["name"], domain["num_samples"]) for domain in values["domains"]] == [("north", 30), ("south", 29)]
    assert values["domains"][0]["nll"] == pytest.approx(whole.nll)
    assert values["domains"][0]["accuracy"] == whole.accuracy
    assert (values["source"], values["suite"], values["data"]) == (None, None, str(tmp_path / "new"))
    assert "average accuracy on 2 domains" in result.stdout
    few = call(folder, "--data", tmp_path / "new" / "south", "--set", "evaluate_limit=8")
    assert [line.split()[-1] for line in few.stdout.splitlines() if line.startswith("south")] == ["8"]


def test_a_domain_that_cannot_be_read_takes_no_other_with_it(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for domain in ("east", "north", "west"):
        path = tmp_path / "new" / domain / run.classes[0] / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(ToySuite().source_test.images[0]).save(path)
    for domain in ("east", "north"):
        (tmp_path / "new" / domain / run.classes[0] / "0.png").write_bytes(b"junk")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("east was not scored (2 of 3 domains): ")
    assert "0.png" in str(result.exception)
    assert "west" in result.stdout
    values = json.loads((tmp_path / "scores.json").read_text())
    assert ([domain["name"] for domain in values["domains"]], values["missing"]) == (["west"], ["east", "north"])


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    data = ToySuite().source_test
    for domain in ("north", "south"):
        for row in range(4):
            path = tmp_path / "new" / domain / run.classes[data.labels[row]] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images[row]).save(path)
    bad = [tmp_path / "new" / "north" / run.classes[data.labels[row]] / f"{row}.png" for row in (1, 2)]
    for path in bad:
        path.write_bytes(b"junk")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert isinstance(result.exception, InputError)
    said = "scored without unreadable images: .*png and 1 more; --json lists all"
    assert re.fullmatch(said, str(result.exception))
    values = json.loads((tmp_path / "scores.json").read_text())
    assert [(domain["name"], domain["num_samples"]) for domain in values["domains"]] == [("north", 2), ("south", 4)]
    assert (values["missing"], sorted(values["unreadable"])) == ([], sorted(map(str, bad)))


def test_a_domain_that_fails_without_its_unreadable_images_too_takes_no_other_with_it(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for domain in ("north", "south"):
        path = tmp_path / "new" / domain / run.classes[0] / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(ToySuite().source_test.images[0]).save(path)
    (tmp_path / "new" / "north" / run.classes[0] / "1.png").write_bytes(b"junk")
    whole = evaluation.score_domains

    def fail_in_the_north(model, domains, **options):
        if "north" in domains:
            raise InputError("logits that are not finite")
        return whole(model, domains, **options)

    monkeypatch.setattr(evaluation, "score_domains", fail_in_the_north)
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert str(result.exception) == "north was not scored: logits that are not finite"
    values = json.loads((tmp_path / "scores.json").read_text())
    assert ([domain["name"] for domain in values["domains"]], values["missing"]) == (["south"], ["north"])
    assert values["unreadable"] == []


def test_a_domain_without_images_is_missing_and_the_others_are_scored(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for domain in ("north", "south"):
        (tmp_path / "new" / domain / run.classes[0]).mkdir(parents=True)
    Image.fromarray(ToySuite().source_test.images[0]).save(tmp_path / "new" / "north" / run.classes[0] / "0.png")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert str(result.exception) == "south was not scored: domain 'south' has no images to score"
    values = json.loads((tmp_path / "scores.json").read_text())
    assert ([domain["name"] for domain in values["domains"]], values["missing"]) == (["north"], ["south"])


def test_images_of_another_suite_come_at_the_size_that_the_network_was_trained_for(tmp_path, monkeypatch):
    monkeypatch.setitem(SUITES._entries, "toy_large", lambda: ToySuite(targets=("far",), size=(16, 16)))
    run = install_run(monkeypatch, tmp_path / "run", ToySuite())
    sizes, features = set(), run.model.features
    monkeypatch.setattr(run.model, "features", lambda images: sizes.add(tuple(images.shape[2:])) or features(images))
    result = CliRunner().invoke(app, [str(tmp_path / "run"), "--suite", "toy_large"])
    assert result.exit_code == 0, result.output
    assert sizes == {(8, 8)}


@pytest.mark.parametrize(
    ("name", "trained_args", "scored_args", "refused"),
    [
        ("digits_mini", {}, {"seed": 5}, "seed"),
        ("digits_mini", {}, {"root": "/moved"}, None),
        ("folder", {"root": "/a"}, {"root": "/a", "test": 0.3}, "test"),
        ("folder", {"root": "/a"}, {"root": "/a", "seed": 0}, None),  # its default, spelled out
        # What is scored of these is the same, whatever was trained on.
        ("digits", {"subset": "ada"}, {}, None),
        ("cifar10c", {"held_out": 5000}, {}, None),
    ],
)
def test_what_a_run_held_out_is_held_out_when_it_is_scored(name, trained_args, scored_args, refused):
    trained, scored = Choice(name=name, args=trained_args), Choice(name=name, args=scored_args)
    with pytest.raises(WrongCallError, match=rf"suite\.{refused}\b") if refused else nullcontext():
        check_split(trained, scored, ("a",), ("a",))


def test_another_source_of_the_same_images_is_refused():
    trained, scored = (Choice(name="pacs", args={"source": name}) for name in ("photo", "sketch"))
    with pytest.raises(WrongCallError, match=r"suite\.source\b"):
        check_split(trained, scored, ("photo",), ("sketch",))


def scores(folder, *words):
    file = folder / "scores.json"
    result = call(folder, "--json", file, *words)
    assert result.exit_code == 0, result.output
    return json.loads(file.read_text())


def make_photos(folder):
    """Two domains of two classes, noise of one brightness each."""
    generator = np.random.default_rng(0)
    for domain, label, number in itertools.product(("day", "night"), ("dark", "light"), range(12)):
        path = folder / domain / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 128, (32, 32, 3)) + 127 * (label == "light")
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


def replace_weights(folder, state):
    """Give a finished run other weights, and its result their checksum."""
    path = folder / "model.safetensors"
    path.write_bytes(pack_state(state))
    result = read_result(folder / "result.json")
    write_result(folder / "result.json", seal(replace(result, weights_sha256=file_sha256(path))))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run whose learned means lie far from the images' own."""
    folder = tmp_path_factory.mktemp("runs") / "asr"
    run(recipe("digits_mini.erm_asr", scale="smoke"), folder)
    state = read_state(folder / "model.safetensors")
    for name, value in state.items():
        if "mu_decoder.weight" in name:
            state[name] = value * 200
    replace_weights(folder, state)
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
    replace_weights(tmp_path / "confined", {**state, **limits})
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
        domain = tmp_path / "photos" / "day" / name
        domain.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((48, 48, 3), 20 * number, np.uint8)).save(domain / f"{number}.png")
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
    assert "source images" in str(result.exception)


def test_limits_are_lifted_for_new_domains_without_the_source(tmp_path):
    photos = make_photos(tmp_path / "photos")
    train_on(photos, tmp_path / "run", confine=8)
    night = (photos / "night").rename(tmp_path / "night")
    photos.rename(tmp_path / "gone")
    assert call(tmp_path / "run", "--data", night, "--set", "confine=0").exit_code == 0
    result = call(tmp_path / "run", "--data", night, "--set", "confine=4")
    assert isinstance(result.exception, InputError)


def test_aliases_and_unknown_classes_can_be_settled_for_new_images(tmp_path):
    photos = make_photos(tmp_path / "photos")
    train_on(photos, tmp_path / "run")
    night = photos / "night"
    (night / "light").rename(night / "hell")
    shutil.copytree(night / "dark", night / "other")
    (tmp_path / "names.yaml").write_text("hell: light\n")
    words = ("--data", night, "--set", f"suite.aliases={tmp_path / 'names.yaml'}")
    assert scores(tmp_path / "run", *words)["domains"][0]["num_samples"] == 24
    result = call(tmp_path / "run", *words, "--set", "suite.unknown=refuse")
    assert isinstance(result.exception, UnknownNameError)
    assert call(tmp_path / "run", *words, "--set", "suite.size=16").exit_code == 2


def test_a_file_of_aliases_may_have_moved(tmp_path):
    photos, names = make_photos(tmp_path / "photos"), tmp_path / "names.yaml"
    (photos / "night" / "light").rename(photos / "night" / "hell")
    names.write_text("hell: light\n")
    args = {"root": str(photos), "source": "day", "size": 32, "aliases": str(names)}
    suite = Choice(name="folder", args=args)
    run(replace(recipe("digits_mini.erm_bn", scale="smoke"), suite=suite), tmp_path / "run")
    before = scores(tmp_path / "run")
    moved = names.rename(tmp_path / "moved.yaml")
    assert scores(tmp_path / "run", "--set", f"suite.aliases={moved}")["domains"] == before["domains"]
    moved.write_text("hell: light\nlight: bright\n")
    assert call(tmp_path / "run", "--set", f"suite.aliases={moved}").exit_code != 0


def test_what_learns_no_mean_cannot_be_confined(tmp_path):
    run(recipe("digits_mini.erm_none", scale="smoke"), tmp_path / "none")
    result = call(tmp_path / "none", "--set", "confine=30")
    assert isinstance(result.exception, ConversionError)
    assert "no layer that learns its standardization" in str(result.exception)
