"""A run and the images it was begun with."""

import json
import shutil
from dataclasses import replace

import pytest

import asrnorm
from asrnorm.core.errors import InputError
from asrnorm.data import create_suite
from asrnorm.training.log import record_environment
from asrnorm.training.run_folder import (
    describe_source,
    read_listing,
    refuse_changed_images,
    refuse_other_data,
    refuse_other_start,
)
from helpers.published import write_folder


@pytest.mark.parametrize(
    ("now", "change"),
    [
        (["dog", "zcat"], r"gone: cat; new: zcat"),
        (["cat", "dog", "elk"], r"gone: none; new: elk"),
        (["dog", "cat"], r"gone: none; new: none"),
    ],
)
def test_other_classes_are_refused(tmp_path, now, change):
    path = tmp_path / "env.json"
    refuse_other_data(path, now, 10)  # of a run that has not begun
    record_environment(path, {"commit": "", "classes": ["cat", "dog"]})
    refuse_other_data(path, ["cat", "dog"], 10)
    with pytest.raises(InputError, match=rf"begun with other classes \({change}\); start over with --fresh"):
        refuse_other_data(path, now, 10)


def test_classes_in_another_unicode_form_are_the_same(tmp_path):
    path = tmp_path / "env.json"
    record_environment(path, {"commit": "", "classes": ["A\u0308pfel", "Birne"]})
    refuse_other_data(path, ["\u00c4pfel", "Birne"], 10)
    with pytest.raises(InputError, match="begun with other classes"):
        refuse_other_data(path, ["Birne", "\u00c4pfel"], 10)


def test_another_number_of_images_is_refused(tmp_path):
    path = tmp_path / "env.json"
    record_environment(path, {"commit": "", "classes": ["cat", "dog"], "images": 1200})
    refuse_other_data(path, ["cat", "dog"], 1200)
    with pytest.raises(InputError, match=r"begun with 1,200 images of the source, there are 1,201 now"):
        refuse_other_data(path, ["cat", "dog"], 1201)


def test_as_many_images_of_other_names_are_refused(tmp_path):
    path = tmp_path / "env.json"
    record_environment(path, {"commit": "", "classes": ["cat", "dog"], "images": 1200})
    refuse_other_data(path, ["cat", "dog"], 1200, "b")  # of a run that was begun before names were kept
    path.unlink()
    record_environment(path, {"commit": "", "classes": ["cat", "dog"], "images": 1200, "listing": "a"})
    refuse_other_data(path, ["cat", "dog"], 1200, "a")
    with pytest.raises(InputError, match=r"other images of the source: there are 1,200 as before, but not of the same"):
        refuse_other_data(path, ["cat", "dog"], 1200, "b")


def test_other_files_under_the_same_names_are_refused(tmp_path):
    path = tmp_path / "env.json"
    record_environment(path, {"commit": "", "classes": ["cat"], "images": 1200, "listing": "a"})
    refuse_other_data(path, ["cat"], 1200, "a", "1")  # of a run that was begun before sizes were kept
    path.unlink()
    record_environment(path, {"commit": "", "classes": ["cat"], "images": 1200, "listing": "a", "sizes": "1"})
    refuse_other_data(path, ["cat"], 1200, "a", "1")
    with pytest.raises(InputError, match=r"there are 1,200 of the same names, but other files; bring back"):
        refuse_other_data(path, ["cat"], 1200, "a", "2")


def test_a_damaged_number_of_images_is_no_reason(tmp_path):
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"classes": ["a"], "images": "x"}))
    refuse_other_data(path, ["a"], 10)


@pytest.fixture
def finished(tmp_path):
    """A folder of images, the config of a run on it, and its `env.json`."""
    write_folder(tmp_path / "images")
    config = asrnorm.recipe("folder.erm_bn", scale="smoke", source="art", **{"suite.root": str(tmp_path / "images")})
    path = tmp_path / "env.json"
    suite = create_suite("folder", **config.suite.args)
    record_environment(path, {"commit": "", **describe_source(suite)})
    return tmp_path / "images", config, path


def test_a_finished_run_on_the_same_images_is_no_reason(finished):
    images, config, path = finished
    refuse_changed_images(path, config)
    shutil.copy(images / "art/cat/0.png", images / "photo/cat/new.png")  # a target may grow
    refuse_changed_images(path, config)
    assert read_listing(path) == describe_source(create_suite("folder", **config.suite.args))["listing"]


def test_other_images_of_a_target_are_told_of(finished, caplog):
    images, config, path = finished
    begun = refuse_other_start(path, create_suite("folder", **config.suite.args), config)
    record_environment(path, {"commit": "", **begun})
    refuse_changed_images(path, config)
    assert not caplog.messages
    shutil.copytree(images / "photo", images / "night")
    refuse_changed_images(path, config)
    (line,) = caplog.messages
    assert "other target images are there than the run was scored on; asrnorm evaluate scores them" in line


def test_other_weights_at_the_same_place_are_a_reason(finished, tmp_path):
    _, config, path = finished
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"first")
    config = replace(config, weights=str(weights))
    suite = create_suite("folder", **config.suite.args)
    record_environment(path, {"commit": "", **refuse_other_start(path, suite, config)})
    refuse_other_start(path, suite, config)
    refuse_changed_images(path, config)
    weights.write_bytes(b"other")
    for refuse in (lambda: refuse_other_start(path, suite, config), lambda: refuse_changed_images(path, config)):
        with pytest.raises(InputError, match=r"begun with other weights than .*w.safetensors has now; bring back"):
            refuse()
    weights.unlink()
    refuse_changed_images(path, config)  # gone, they change nothing of a result


def test_images_that_were_added_are_a_reason(finished):
    images, config, path = finished
    shutil.copy(images / "art/cat/0.png", images / "art/cat/new.png")
    with pytest.raises(InputError, match=r"begun with 20 images of the source, there are 21 now; bring back"):
        refuse_changed_images(path, config)


def test_other_classes_at_the_same_place_are_a_reason(finished):
    images, config, path = finished
    shutil.rmtree(images)
    write_folder(images, classes=("apple", "pear"))
    with pytest.raises(InputError, match=r"begun with other classes \(gone: cat, dog; new: apple, pear\)"):
        refuse_changed_images(path, config)


def test_images_that_are_gone_leave_a_finished_run_as_it_is(finished):
    images, config, path = finished
    shutil.rmtree(images / "art")
    refuse_changed_images(path, config)
    shutil.rmtree(images)
    refuse_changed_images(path, config)


def test_published_images_are_not_looked_for(finished):
    _, config, path = finished
    refuse_changed_images(path, replace(asrnorm.recipe("pacs.erm_bn", source="photo"), seed=config.seed))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"listing": ""}'])
def test_a_listing_that_is_not_there_is_none(tmp_path, text):
    path = tmp_path / "env.json"
    assert read_listing(path) is None
    path.write_text(text)
    assert read_listing(path) is None
