import json

import pytest
import torch

from asrnorm.errors import InputError
from asrnorm.training.environment import describe_environment, record_environment, refuse_other_data
from asrnorm.world import ALONE


def test_a_run_that_goes_on_elsewhere_says_so(tmp_path):
    path = tmp_path / "env.json"
    here = describe_environment(torch.device("cpu"), ALONE)
    assert record_environment(path, here)["resumed"] == []
    assert record_environment(path, here)["resumed"] == []
    record_environment(path, {**here, "threads": 99})
    first = record_environment(path, {**here, "threads": 99})
    assert first["resumed"] == [{"threads": 99}]
    assert first["threads"] == here["threads"]
    assert json.loads(path.read_text()) == first


def test_a_damaged_file_is_written_anew(tmp_path):
    (tmp_path / "env.json").write_text("{")
    here = describe_environment(torch.device("cpu"), ALONE)
    assert record_environment(tmp_path / "env.json", here)["commit"] == here["commit"]


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


@pytest.mark.parametrize("resumed", [5, [1], "x", None])
def test_a_history_that_is_none_is_begun_anew(tmp_path, resumed):
    path = tmp_path / "env.json"
    here = describe_environment(torch.device("cpu"), ALONE)
    path.write_text(json.dumps({**here, "resumed": resumed}))
    assert record_environment(path, {**here, "threads": 99})["resumed"] == [{"threads": 99}]


def test_what_was_different_before_the_last_resumption_is_remembered(tmp_path):
    path = tmp_path / "env.json"
    here = describe_environment(torch.device("cpu"), ALONE)
    for facts in (here, {**here, "threads": 99}, {**here, "threads": 99, "cores": 77}):
        record_environment(path, facts)
    again = record_environment(path, {**here, "threads": 99, "cores": 77})
    assert again["resumed"] == [{"threads": 99}, {"cores": 77}]


def test_a_damaged_number_of_images_is_no_reason(tmp_path):
    path = tmp_path / "env.json"
    path.write_text(json.dumps({"classes": ["a"], "images": "x"}))
    refuse_other_data(path, ["a"], 10)
