import json
import subprocess

import torch

from asrnorm import __version__
from asrnorm.training import environment
from asrnorm.training.environment import describe_environment, find_commit, record_environment
from asrnorm.world import ALONE


def test_the_commit_is_that_of_the_packages_own_repository(monkeypatch, tmp_path):
    package = tmp_path / "site-packages" / "asrnorm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(environment.asrnorm, "__file__", str(package / "__init__.py"))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "someone else's"], check=True)
    assert find_commit() == f"v{__version__}", "installed inside a repository that is not its own"
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "ours"], check=True)
    commit = find_commit()
    assert len(commit) == 40
    (package / "__init__.py").write_text("changed")
    assert find_commit() == f"{commit}+"


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
