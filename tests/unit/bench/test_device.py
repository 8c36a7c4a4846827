import logging
import os

import pytest
import torch

from asrnorm.bench import device
from asrnorm.bench.harness import Case
from asrnorm.core.errors import InputError, WrongCallError


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(device.torch.cuda, "device_count", lambda: 0)
    for name in ("cuda", "cuda:1"):
        with pytest.raises(InputError, match="torch sees no such CUDA device; use --device cpu"):
            device.require(name)


@pytest.mark.parametrize("name", ["foo", "meta", "mps", "cpu:x"])
def test_what_is_no_device_to_measure_on_is_a_wrong_call(name):
    with pytest.raises(WrongCallError, match=f"device '{name}' cannot be used: it must be cpu or cuda"):
        device.require(name)


def test_a_way_that_cannot_run_is_left_out_and_named(caplog):
    def fail():
        raise RuntimeError("no kernel\nmany more lines")

    with caplog.at_level(logging.WARNING, "asrnorm"):
        assert device.attempt("broken", lambda: Case(fail, 1)) == {}
    assert caplog.messages == ["bench: broken is skipped: RuntimeError: no kernel"]
    assert list(device.attempt("whole", lambda: Case(lambda: None, 1))) == ["whole"]


def test_the_backend_is_chosen_for_a_while(monkeypatch):
    monkeypatch.delenv("ASRNORM_BACKEND", raising=False)
    chosen = []

    class Use:
        def __init__(self, name):
            chosen.append(name)

        def __enter__(self):
            pass

        def __exit__(self, *exception):
            pass

    monkeypatch.setattr(device.ops, "use_backend", Use, raising=False)
    with device.on_backend("reference"):
        assert os.environ["ASRNORM_BACKEND"] == "reference"
    assert "ASRNORM_BACKEND" not in os.environ
    with device.on_backend("auto"):
        assert "ASRNORM_BACKEND" not in os.environ
    assert chosen == ["reference", "auto"]


def test_no_row_is_called_fused_where_the_kernels_cannot_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    for problem, fused in (("no Triton", False), (None, True)):
        monkeypatch.setattr(device, "kernel_problem", lambda index, problem=problem: problem)
        assert device.has_fused(torch.device("cuda")) is fused
        assert not device.has_fused(torch.device("cpu"))


@pytest.mark.gpu
def test_a_replay_computes_anew_from_the_same_memory():
    x = torch.ones(4, device="cuda")
    total = torch.zeros(4, device="cuda")
    replay = device.capture(lambda: total.add_(x))
    total.zero_()
    x.fill_(3)
    replay()
    replay()
    assert total.tolist() == [6.0] * 4


@pytest.mark.gpu
def test_a_copy_reaches_most_of_the_memory_bandwidth():
    assert device.copy_bandwidth(torch.device("cuda")) > 1e11
