import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test writes into the user's cache."""
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path_factory.mktemp("cache")))
