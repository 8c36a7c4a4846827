import json

import pytest
import torch

from asrnorm.core.distributed import ALONE
from asrnorm.training.log import describe_environment, record_environment


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
