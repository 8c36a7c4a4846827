import pytest

from helpers.fake_mps import FakeMps


@pytest.fixture
def fake(tmp_path, monkeypatch):
    return FakeMps(tmp_path, monkeypatch)
