"""`asrnorm predict`: a row or a JSON line an image; a bad image does not stop the others."""

import json
import subprocess
import sys

import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from asrnorm.cli.predict import predict
from asrnorm.core.errors import InputError
from helpers.finished_run import install_run
from helpers.toy_suite import ToySuite, make_images

app = typer.Typer()
app.command()(predict)


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture
def run(tmp_path, monkeypatch):
    install_run(monkeypatch, tmp_path / "run", ToySuite(), evaluate_batch=2)
    return tmp_path / "run"


@pytest.fixture
def images(tmp_path):
    paths = [tmp_path / f"picture [{row}].png" for row in range(4)]
    for path, image in zip(paths, make_images(4).images, strict=True):
        Image.fromarray(image).resize((24, 24), Image.Resampling.NEAREST).save(path)
    return paths


def test_a_json_line_an_image_in_the_order_given(run, images):
    result = call(run, *images, "--json", "-")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["image"], row["class"]) for row in rows] == list(zip(map(str, images), "abcd", strict=True))
    assert all(0.25 < row["probability"] <= 1 for row in rows)


def test_of_more_than_one_class_all_are_shown_most_probable_first(run, images):
    result = call(run, *images, "--top", 3, "--json", "-")
    assert result.exit_code == 0, result.output
    for row in map(json.loads, result.stdout.splitlines()):
        classes, probabilities = ([one[key] for one in row["top"]] for key in ("class", "probability"))
        assert (row["class"], row["probability"]) == (classes[0], probabilities[0])
        assert len(set(classes)) == 3
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) <= 1
    lines = call(run, *images, "--top", 9).stdout.splitlines()
    assert len(lines) == 1 + 4 * 4, "a line for each of the four classes"


def test_json_lines_go_to_a_file_beside_the_table(run, images, tmp_path):
    result = call(run, *images, "--json", tmp_path / "lines.jsonl")
    assert result.stdout.startswith("image")
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == len(images)


def test_a_table_for_people(run, images):
    result = call(run, *images)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["image", "class", "probability"]
    assert [line.split()[-2] for line in lines[1:]] == list("abcd")
    assert "picture [3].png" in lines[4]  # brackets are not taken for markup


@pytest.mark.parametrize("options", [(), ("--json", "-")])
def test_a_bad_image_is_a_line_on_standard_error_and_the_others_go_on(run, images, options):
    images[1].write_bytes(b"no image")
    result = call(run, *images, "gone.png", *options)
    assert result.exit_code == 1
    errors = result.stderr.splitlines()
    assert len(errors) == 2
    assert errors[0].startswith(f"asrnorm: {images[1]}: cannot be read as an image")
    assert errors[1] == "asrnorm: gone.png: no such file"
    assert sum(str(image) in result.stdout for image in images) == 3


def test_no_such_run_is_refused_before_the_images_are_looked_at(tmp_path):
    caught = call(tmp_path / "nothing", "gone.png").exception
    assert isinstance(caught, InputError)
    assert "no such run folder" in str(caught)


def test_importing_the_commands_does_not_load_torch():
    code = "import sys, asrnorm.cli.predict, asrnorm.cli.evaluate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_of_a_folder_all_images_are_taken(run, images, tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for path, name in zip(images, ("b.png", "a.png", "more/c.png", "more/a.png"), strict=True):
        path.rename(tmp_path / "photos" / name)
    (tmp_path / "photos" / "notes.txt").write_text("buy milk")
    result = call(run, tmp_path / "photos", "--json", "-")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    names = [(str(tmp_path / "photos" / name), label) for name, label in zip(("a.png", "b.png"), "ba", strict=True)]
    deeper = [(str(tmp_path / "photos" / "more" / f"{name}.png"), label) for name, label in (("a", "d"), ("c", "c"))]
    assert [(row["image"], row["class"]) for row in rows] == [*names, *deeper]


def test_an_empty_folder_and_a_text_are_answered_by_name(run, images, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes.txt").write_text("buy milk")
    result = call(run, tmp_path / "photos", tmp_path / "notes.txt", images[0])
    assert result.exit_code == 1
    folder, text = result.stderr.splitlines()
    assert folder == f"asrnorm: {tmp_path}/photos: no images in it"
    assert str(images[0]) in result.stdout, "the others go on"
    assert text.startswith(f"asrnorm: {tmp_path}/notes.txt: ")


def test_images_are_predicted_in_the_form_in_which_the_run_was_evaluated(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr("asrnorm.evaluation.predict_files", lambda *parts, **options: given.update(options) or [])
    suite = ToySuite(size=(227, 227))
    install_run(monkeypatch, tmp_path / "run", suite, evaluate_batch=2, precision="float64", augment="pacs")
    result = CliRunner().invoke(app, [str(tmp_path / "run"), "a.png"])
    assert result.exit_code == 0, result.output
    form = {"image_size": (227, 227), "batch_size": 2, "precision": "float64", "resize": (222, 222), "top": 1}
    assert given == form
