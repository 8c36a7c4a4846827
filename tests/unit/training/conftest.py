import pytest

from helpers import tiny_run


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The toy suite, network and methods are registered for one test."""
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test writes into the user's cache."""
    monkeypatch.setenv("ASRNORM_CACHE", str(tmp_path_factory.mktemp("cache")))
