"""`env.json`: what a run records, and the data it must still have when it resumes."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

import asrnorm
from asrnorm.core.distributed import ALONE
from asrnorm.core.errors import InputError
from asrnorm.core.results import read_environment
from asrnorm.data import create_suite
from asrnorm.training.environment import (
    check_finished,
    check_start,
    compare_source,
    describe_environment,
    describe_source,
    record_environment,
)
from helpers.published import write_folder

FACTS = {"classes": ["cat", "dog"], "images": 1200, "listing": "a", "sizes": "1"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "env.json"


@pytest.fixture
def here():
    return describe_environment(torch.device("cpu"), ALONE)


def test_a_run_that_is_resumed_elsewhere_records_the_changes(path, here):
    for _ in range(2):
        assert record_environment(path, here)["resumed"] == []
    for _ in range(2):
        first = record_environment(path, {**here, "threads": 99})
    record_environment(path, {**here, "threads": 99, "cores": 77})
    again = record_environment(path, {**here, "threads": 99, "cores": 77})
    assert first["resumed"] == [{"threads": 99}]
    assert again["resumed"] == [{"threads": 99}, {"cores": 77}]
    assert again["threads"] == here["threads"]
    assert json.loads(path.read_text()) == again
    assert {key: read_environment(path)[key] for key in here} == {**here, "threads": 99, "cores": 77}


def test_a_damaged_file_is_written_again(path, here):
    path.write_text("{")
    assert read_environment(path) == {}
    assert record_environment(path, here)["commit"] == here["commit"]


@pytest.mark.parametrize("resumed", [5, [1], "x", None])
def test_a_damaged_history_starts_again_and_hides_nothing(path, here, resumed):
    path.write_text(json.dumps({**here, **FACTS, "resumed": resumed}))
    with pytest.raises(InputError):
        compare_source(path, {**FACTS, "images": 9})
    assert record_environment(path, {**here, "threads": 99})["resumed"] == [{"threads": 99}]


@pytest.mark.parametrize("text", ["", "[]", "5", "null", "[" * 100_000])
def test_a_file_that_holds_no_environment_reads_as_empty(path, text):
    assert read_environment(path) == {}
    path.write_text(text)
    assert read_environment(path) == {}


@pytest.mark.parametrize(
    ("classes", "change"),
    [
        (["dog", "zcat"], r"gone: cat; new: zcat"),
        (["cat", "dog", "elk"], r"gone: none; new: elk"),
        (["dog", "cat"], r"gone: none; new: none"),
    ],
)
def test_other_classes_are_refused(path, classes, change):
    compare_source(path, {**FACTS, "classes": classes})  # of a run that has not started
    record_environment(path, {"commit": "", **FACTS})
    compare_source(path, FACTS)
    with pytest.raises(InputError, match=rf"other classes \({change}\); start over with --fresh"):
        compare_source(path, {**FACTS, "classes": classes})


def test_classes_in_another_unicode_form_are_the_same(path):
    record_environment(path, {"commit": "", **FACTS, "classes": ["A\u0308pfel", "Birne"]})
    compare_source(path, {**FACTS, "classes": ["\u00c4pfel", "Birne"]})
    with pytest.raises(InputError):
        compare_source(path, {**FACTS, "classes": ["Birne", "\u00c4pfel"]})


@pytest.mark.parametrize(
    ("fact", "value", "message"), [("images", 1201, "1,201"), ("listing", "b", "names"), ("sizes", "2", "files")]
)
def test_other_images_are_refused_unless_the_run_is_older_than_the_record(path, fact, value, message):
    record_environment(path, {"commit": "", **{name: old for name, old in FACTS.items() if name != fact}})
    compare_source(path, {**FACTS, fact: value})
    path.unlink()
    record_environment(path, {"commit": "", **FACTS})
    with pytest.raises(InputError, match=rf"{message}.*; restore the original ones, or start over with --fresh"):
        compare_source(path, {**FACTS, fact: value})


@pytest.mark.parametrize("damaged", [{"images": "x"}, {"images": float("inf")}, {"images": [1]}, {"classes": 5}])
def test_damaged_facts_are_not_compared(path, damaged):
    path.write_text(json.dumps({**FACTS, **damaged}))
    compare_source(path, {**FACTS, "images": 10})


@pytest.fixture
def finished(tmp_path, path):
    """A folder of images, the config of a run on it, and its `env.json`."""
    write_folder(tmp_path / "images")
    config = asrnorm.recipe("folder.erm_bn", scale="smoke", source="art", **{"suite.root": str(tmp_path / "images")})
    suite = create_suite("folder", **config.suite.args)
    record_environment(path, {"commit": "", **describe_source(suite)})
    return tmp_path / "images", config, path


def test_a_finished_run_on_the_same_images_is_no_reason(finished):
    images, config, path = finished
    check_finished(path, config)
    shutil.copy(images / "art/cat/0.png", images / "photo/cat/new.png")  # a target may grow
    check_finished(path, config)


def test_other_images_of_a_target_are_told_of(finished, caplog):
    images, config, path = finished
    begun = check_start(path, create_suite("folder", **config.suite.args), config)
    record_environment(path, {"commit": "", **begun})
    check_finished(path, config)
    assert not caplog.messages
    shutil.copytree(images / "photo", images / "night")
    check_finished(path, config)
    (line,) = caplog.messages
    assert "the target images changed after the run; asrnorm evaluate scores them" in line


def test_other_weights_at_the_same_place_are_a_reason(finished, tmp_path):
    _, config, path = finished
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"first")
    config = replace(config, weights=str(weights))
    suite = create_suite("folder", **config.suite.args)
    record_environment(path, {"commit": "", **check_start(path, suite, config)})
    check_start(path, suite, config)
    check_finished(path, config)
    weights.write_bytes(b"other")
    for refuse in (lambda: check_start(path, suite, config), lambda: check_finished(path, config)):
        with pytest.raises(InputError, match=r"other weights than .*w.safetensors has now; restore the original file"):
            refuse()
    weights.unlink()
    check_finished(path, config)  # gone, they change nothing of a result


def test_images_that_were_added_are_a_reason(finished):
    images, config, path = finished
    shutil.copy(images / "art/cat/0.png", images / "art/cat/new.png")
    with pytest.raises(InputError, match=r"started with 20 source images, now there are 21; restore"):
        check_finished(path, config)


def test_other_classes_at_the_same_place_are_a_reason(finished):
    images, config, path = finished
    shutil.rmtree(images)
    write_folder(images, classes=("apple", "pear"))
    with pytest.raises(InputError, match=r"other classes \(gone: cat, dog; new: apple, pear\)"):
        check_finished(path, config)


def test_images_that_are_gone_leave_a_finished_run_as_it_is(finished):
    images, config, path = finished
    shutil.rmtree(images / "art")
    check_finished(path, config)
    shutil.rmtree(images)
    check_finished(path, config)


def test_published_images_are_not_looked_for(finished):
    _, config, path = finished
    check_finished(path, replace(asrnorm.recipe("pacs.erm_bn", source="photo"), seed=config.seed))
