import pytest
import torch

from asrnorm.launch import mps_probe as probe


@pytest.fixture
def gpus(monkeypatch):
    def set_up(*capabilities):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capabilities[index])
        monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.tensor(1.0))

    return set_up


def control(folder, said):
    path = folder / "control"
    path.write_text(f"#!/bin/sh\ncat > /dev/null\n{said}\n")
    path.chmod(0o755)
    return str(path)


def test_all_is_well_where_every_gpu_computes_through_a_server(gpus, tmp_path):
    gpus((9, 0), (7, 0))
    assert probe.main(control(tmp_path, "echo 4711")) is None


@pytest.mark.parametrize("said", ["", "echo Cannot find MPS control daemon process; exit 1"])
def test_a_daemon_that_nothing_went_through_is_none(gpus, tmp_path, said):
    gpus((9, 0))
    assert probe.main(control(tmp_path, said)) == "the MPS daemon started no server"


def test_clients_that_share_their_memory_are_refused(gpus):
    gpus((9, 0), (6, 1))
    assert probe.main("control") == "GPU 1 is older than Volta"


def test_no_gpu_is_said(gpus):
    gpus()
    assert probe.main("control") == "no CUDA device under MPS"
