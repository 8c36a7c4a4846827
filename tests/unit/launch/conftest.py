import os
from pathlib import Path

import pytest

import asrnorm
from helpers.fake_mps import FakeMps


@pytest.fixture(autouse=True)
def _processes_find_the_package_and_the_helpers(monkeypatch):
    places = [str(Path(asrnorm.__file__).parents[1]), str(Path(__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    return FakeMps(tmp_path, monkeypatch)
