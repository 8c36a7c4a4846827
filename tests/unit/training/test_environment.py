import json

import torch

from asrnorm.training.environment import describe_environment, record_environment
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
