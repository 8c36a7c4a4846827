"""Every method, with a norm of either kind, stops and goes on as if it had not."""

import pytest

from asrnorm.methods import METHODS
from asrnorm.training import run
from helpers import tiny_run
from helpers.tiny_run import Choice, kept_pool, small_method, tiny_config


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.mark.parametrize("norm", ["bn", "asr"])
@pytest.mark.parametrize("name", METHODS.names())
def test_a_resumed_run_ends_in_the_same_bytes(name, norm, tmp_path):
    config = tiny_config(method=small_method(name), norm=Choice(name=norm), steps=16, checkpoint_every=6)
    with kept_pool():
        run(config, tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):  # the previous one is of step 12
        (tmp_path / name).unlink()
    run(config, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == whole
