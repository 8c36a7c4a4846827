"""Every method, with a norm of either kind, stops and goes on as if it had not."""

import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from asrnorm.core.errors import InterruptedRunError
from asrnorm.methods import METHODS, Method, create_method
from asrnorm.training import run
from asrnorm.training.log import RunProgress
from helpers import tiny_run
from helpers.tiny_run import Choice, kept_pool, small_run, tiny_config


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    for registry, name, entry in tiny_run.entries():
        monkeypatch.setitem(registry._entries, name, entry)


@pytest.mark.parametrize("norm", ["bn", "asr"])
@pytest.mark.parametrize("name", METHODS.names())
def test_a_resumed_run_ends_in_the_same_bytes(name, norm, tmp_path):
    config = tiny_config(**small_run(name), norm=Choice(name=norm), steps=16, checkpoint_every=6)
    with kept_pool():
        run(config, tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):  # the previous one is of step 12
        (tmp_path / name).unlink()
    run(config, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == whole


@pytest.mark.parametrize("name", METHODS.names())
def test_a_run_in_bfloat16_is_finite_and_resumes(name, tmp_path):
    """The recipes of PACS and CIFAR-10-C train in bfloat16."""
    config = tiny_config(**small_run(name), norm=Choice(name="asr"), steps=9, checkpoint_every=4, precision="bfloat16")
    with kept_pool():
        result = run(config, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert all(value.isfinite().all() and value.dtype != torch.bfloat16 for value in weights.values())
    assert all(0 <= domain.accuracy <= 1 for domain in result.domains)
    for name in ("result.json", "model.safetensors", "checkpoints/last.pt"):
        (tmp_path / name).unlink()
    run(config, tmp_path)
    assert all(torch.equal(value, weights[key]) for key, value in load_file(tmp_path / "model.safetensors").items())


# `consistency` grows as the method it wraps.
GROWING = [
    name for name in METHODS.names() if type(create_method(name)).grow is not Method.grow and name != "consistency"
]


def test_the_methods_that_grow_are_known():
    assert set(GROWING) == {"ada", "me_ada", "m_ada", "rsda", "esda", "metareg"}


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("name", GROWING)
def test_a_run_that_is_stopped_while_it_grows_stops_there_and_ends_in_the_same_bytes(
    name, calls, tmp_path, monkeypatch
):
    config = tiny_config(**small_run(name), steps=16, checkpoint_every=100)
    step = 0 if name == "metareg" else 7
    run(config, tmp_path / "whole")
    parts = []

    def grow(progress, done):
        parts.append(done)
        if len(parts) == calls:
            os.kill(os.getpid(), signal.SIGTERM)

    folder = tmp_path / "stopped"
    with monkeypatch.context() as patch:
        patch.setattr(RunProgress, "grow", grow)
        with pytest.raises(InterruptedRunError, match=f"interrupted at step {step} of 16"):
            run(config, folder)
    assert len(parts) == calls
    assert sorted(parts) == parts
    kept = torch.load(folder / "checkpoints" / "last.pt", weights_only=True)
    assert kept["step"] == step
    assert not list(folder.glob("pool/*")), "nothing was grown yet"
    run(config, folder)
    whole, resumed = (tmp_path / one / "model.safetensors" for one in ("whole", "stopped"))
    assert resumed.read_bytes() == whole.read_bytes()
