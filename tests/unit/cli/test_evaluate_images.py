"""Which images `asrnorm evaluate` scores: those of new places or another suite, none that were trained on."""

import json
import re
from contextlib import nullcontext

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm import evaluation
from asrnorm.cli.evaluate import evaluate
from asrnorm.cli.evaluation_inputs import refuse_other_split
from asrnorm.core.config import Choice
from asrnorm.core.errors import InputError, WrongCallError
from asrnorm.data import SUITES
from asrnorm.evaluation import score
from helpers.finished_run import install_run
from helpers.toy_suite import ToySuite

app = typer.Typer()
app.command()(evaluate)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "120"})


def test_new_places_are_scored_without_the_source(tmp_path, monkeypatch):
    class Gone(ToySuite):
        def load_source_test(self):
            raise AssertionError("the source is not looked at")

    run, folder = install_run(monkeypatch, tmp_path / "run", Gone()), tmp_path / "run"
    data = ToySuite().source_test
    for row, (pixels, label) in enumerate(zip(data.images, data.labels, strict=True)):
        for place in ("north", "south") if row else ("north",):
            path = tmp_path / "new" / place / run.classes[label] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert result.exit_code == 0, result.output
    values = json.loads((tmp_path / "scores.json").read_text())
    whole = score(run.model, data, name="north")
    assert [(place["name"], place["num_samples"]) for place in values["domains"]] == [("north", 30), ("south", 29)]
    assert values["domains"][0]["nll"] == pytest.approx(whole.nll)
    assert values["domains"][0]["accuracy"] == whole.accuracy
    assert (values["source"], values["suite"], values["data"]) == (None, None, str(tmp_path / "new"))
    assert "average accuracy on 2 places" in result.stdout
    few = call(folder, "--data", tmp_path / "new" / "south", "--set", "evaluate_limit=8")
    assert [line.split()[-1] for line in few.stdout.splitlines() if line.startswith("south")] == ["8"]


def test_a_place_that_cannot_be_read_takes_no_other_with_it(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for place in ("east", "north", "west"):
        path = tmp_path / "new" / place / run.classes[0] / "0.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(ToySuite().source_test.images[0]).save(path)
    for place in ("east", "north"):
        (tmp_path / "new" / place / run.classes[0] / "0.png").write_bytes(b"junk")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("east was not scored (2 of 3 places): ")
    assert "0.png" in str(result.exception)
    assert "west" in result.stdout
    values = json.loads((tmp_path / "scores.json").read_text())
    assert ([place["name"] for place in values["domains"]], values["missing"]) == (["west"], ["east", "north"])


def test_images_that_cannot_be_read_are_left_out_and_named(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    data = ToySuite().source_test
    for place in ("north", "south"):
        for row in range(4):
            path = tmp_path / "new" / place / run.classes[data.labels[row]] / f"{row}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(data.images[row]).save(path)
    bad = [tmp_path / "new" / "north" / run.classes[data.labels[row]] / f"{row}.png" for row in (1, 2)]
    for path in bad:
        path.write_bytes(b"junk")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert isinstance(result.exception, InputError)
    said = "scored without images that cannot be read: .*png and 1 more; --json names all"
    assert re.fullmatch(said, str(result.exception))
    values = json.loads((tmp_path / "scores.json").read_text())
    assert [(place["name"], place["num_samples"]) for place in values["domains"]] == [("north", 2), ("south", 4)]
    assert (values["missing"], sorted(values["unreadable"])) == ([], sorted(map(str, bad)))


def test_a_place_that_fails_without_its_unreadable_images_too_takes_no_other_with_it(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for place in ("north", "south"):
        path = tmp_path / "new" / place / run.classes[0] / "0.png"
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
    assert ([place["name"] for place in values["domains"]], values["missing"]) == (["south"], ["north"])
    assert values["unreadable"] == []


def test_a_place_without_images_is_missing_and_the_others_are_scored(tmp_path, monkeypatch):
    run, folder = install_run(monkeypatch, tmp_path / "run", ToySuite()), tmp_path / "run"
    for place in ("north", "south"):
        (tmp_path / "new" / place / run.classes[0]).mkdir(parents=True)
    Image.fromarray(ToySuite().source_test.images[0]).save(tmp_path / "new" / "north" / run.classes[0] / "0.png")
    result = call(folder, "--data", tmp_path / "new", "--json", tmp_path / "scores.json")
    assert str(result.exception) == "south was not scored: domain 'south' has no images to score"
    values = json.loads((tmp_path / "scores.json").read_text())
    assert ([place["name"] for place in values["domains"]], values["missing"]) == (["north"], ["south"])


def test_images_of_another_suite_come_at_the_size_that_the_network_was_trained_for(tmp_path, monkeypatch):
    monkeypatch.setitem(SUITES._entries, "toy_large", lambda: ToySuite(targets=("far",), size=(16, 16)))
    run = install_run(monkeypatch, tmp_path / "run", ToySuite())
    sizes, features = set(), run.model.features
    monkeypatch.setattr(run.model, "features", lambda images: sizes.add(tuple(images.shape[2:])) or features(images))
    result = CliRunner().invoke(app, [str(tmp_path / "run"), "--suite", "toy_large"])
    assert result.exit_code == 0, result.output
    assert sizes == {(8, 8)}


@pytest.mark.parametrize(
    ("name", "theirs", "mine", "refused"),
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
def test_what_a_run_held_out_is_held_out_when_it_is_scored(name, theirs, mine, refused):
    with (
        nullcontext()
        if refused is None
        else pytest.raises(WrongCallError, match=f"suite.{refused} decides which images")
    ):
        refuse_other_split(Choice(name=name, args=theirs), Choice(name=name, args=mine), ("a",), ("a",))


def test_another_source_of_the_same_images_is_refused():
    theirs, mine = (Choice(name="pacs", args={"source": name}) for name in ("photo", "sketch"))
    with pytest.raises(WrongCallError, match=r"suite\.source decides which images a run is trained on, so it stays"):
        refuse_other_split(theirs, mine, ("photo",), ("sketch",))
