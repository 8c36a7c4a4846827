import pytest

from asrnorm.core.config import Choice
from asrnorm.training import load_run, run
from helpers import tiny_run


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The toy suite, network and methods are registered for one test."""
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.fixture
def folder_of(tmp_path):
    """Train a toy run for a few steps, and return its folder."""

    def train(norm="asr", **changes):
        folder = tmp_path / f"run_{norm}"
        run(tiny_run.tiny_config(norm=Choice(name=norm), steps=3, lambda_every=0, **changes), folder)
        return folder

    return train


@pytest.fixture
def finished(folder_of):
    return load_run(folder_of(), device="cpu")
