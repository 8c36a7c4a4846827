import pytest
import torch

from asrnorm.core.errors import InputError
from asrnorm.core.settings import DEVICE_VARIABLE
from asrnorm.training.distributed import choose_device


@pytest.mark.parametrize("name", ["meta", "xpu:0"])
def test_a_device_that_nothing_here_runs_on_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}' cannot be used: it must be one of auto, cpu, cuda, mps$"):
        choose_device(name)


@pytest.mark.parametrize("name", ["nowhere", ""])
def test_what_is_no_device_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"^device '{name}': ") as caught:
        choose_device(name)
    assert "\n" not in str(caught.value)


def test_what_auto_is_can_be_said_in_the_environment(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda")
    assert choose_device("cpu") == torch.device("cpu")


def test_a_run_whose_gpu_is_gone_says_so_and_does_not_turn_to_the_cpu(monkeypatch):
    monkeypatch.setenv(DEVICE_VARIABLE, "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        InputError, match=r"^ASRNORM_DEVICE 'cuda': this machine has no CUDA .*; set ASRNORM_DEVICE=cpu$"
    ):
        choose_device("auto")
