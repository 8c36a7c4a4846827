import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asrnorm.launch import mps as service
from asrnorm.launch.mps import share_gpus
from asrnorm.launch.mps_daemon import find_processes

TURNS = ("time slices", {})


def folder_of(sharing):
    return Path(next(iter(sharing.variables.values()))["CUDA_MPS_PIPE_DIRECTORY"]).parent


def started_in(fake):
    """The folder of the daemon, from what the program was told."""
    return Path(fake.calls()[0].split()[1]).parent


def test_a_daemon_of_its_own_lives_as_long_as_the_block(fake, caplog):
    caplog.set_level(logging.INFO)
    with share_gpus(["0"], 2) as sharing:
        folder = folder_of(sharing)
        assert sharing.way == "MPS"
        assert sharing.variables["0"] == {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
            "CUDA_VISIBLE_DEVICES": "0",
        }
        assert fake.calls() == [f"start {folder / 'pipe'} {folder / 'log'} 0"]
        assert find_processes(folder / "pipe")
        assert len(str(folder / "pipe" / "control_privileged")) < 90  # the name of a socket
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert fake.calls()[1:] == ["quit -t 5"]
    assert not folder.exists()
    assert not find_processes(folder / "pipe")
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_the_daemon_numbers_its_gpus_anew(fake, tmp_path):
    fake.set_probe(f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])")
    with share_gpus(["3", "GPU-8c", "5"], 2) as sharing:
        names = {gpu: variables["CUDA_VISIBLE_DEVICES"] for gpu, variables in sharing.variables.items()}
    assert names == {"3": "0", "GPU-8c": "GPU-8c", "5": "2"}
    assert fake.calls()[0].endswith(" 3,GPU-8c,5")
    assert (tmp_path / "seen").read_text() == "0,GPU-8c,2"


def test_an_error_in_the_block_ends_the_daemon_too(fake):
    def interrupted():
        with share_gpus(["0"], 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert fake.calls()[1:] == ["quit -t 5"]
    assert not started_in(fake).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_program_leaves_no_daemon(fake, tmp_path, number):
    code = (
        "import time\nfrom pathlib import Path\nfrom asrnorm.launch import mps as service\n"
        "from asrnorm.launch.mps import share_gpus\n"
        f"service._PROBE, service._DEFAULT_PIPE = {service._PROBE!r}, Path({str(service._DEFAULT_PIPE)!r})\n"
        "with share_gpus(['0'], 2):\n    print('up', flush=True)\n    time.sleep(60)\n"
    )
    places = os.pathsep.join(filter(None, (str(Path(service.__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with program:
        assert program.stdout.readline() == b"up\n"
        folder = started_in(fake)
        program.send_signal(number)
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not folder.exists()
    assert not find_processes(folder / "pipe")
    assert fake.calls()[-1] == "quit -t 5"


@pytest.mark.parametrize(
    ("start", "probe", "reason"),
    [
        ("echo no permission >&2; exit 1", "", "no permission"),
        ("exit 3", "", "nvidia-cuda-mps-control ended with status 3"),
        ("sleep 60", "", "nvidia-cuda-mps-control took more than 0.4 s"),
        (":", "import sys; sys.exit('CUDA error 805')", "CUDA error 805"),
        (":", "import time; time.sleep(60)", "probe.py took more than 0.4 s"),
    ],
)
def test_where_it_does_not_work_one_line_says_so_and_processes_take_turns(
    fake, monkeypatch, caplog, start, probe, reason
):
    monkeypatch.setattr(service, "_START_SECONDS", 0.4)
    monkeypatch.setattr(service, "_PROBE_SECONDS", 0.4 if "sleep" in probe else 20.0)
    fake.write(start=start)
    fake.set_probe(probe)
    with share_gpus(["0"], 2) as sharing:
        assert sharing == TURNS
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"processes on one GPU take turns: MPS did not start: {reason}"
    assert not started_in(fake).exists()
    assert not find_processes(started_in(fake) / "pipe")


@pytest.mark.parametrize("quit_", ["sleep 60", "exit 1"])
def test_a_daemon_that_does_not_quit_is_killed(fake, monkeypatch, quit_):
    monkeypatch.setattr(service, "_QUIT_SECONDS", 0.3)
    fake.write(quit_=quit_)
    with share_gpus(["0"], 2) as sharing:
        folder = folder_of(sharing)
        assert find_processes(folder / "pipe")
    assert not find_processes(folder / "pipe")
    assert not folder.exists()
    assert fake.calls()[1:] == (["quit -t 5"] if quit_ == "sleep 60" else ["quit -t 5", "quit"])


def test_a_driver_that_knows_no_time_limit_is_told_without(fake):
    fake.write(quit_='test "$words" = quit || exit 1')
    with share_gpus(["0"], 2):
        pass
    assert fake.calls()[1:] == ["quit -t 5", "quit"]


def test_without_the_program_processes_take_turns(fake, monkeypatch, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with share_gpus(["0"], 2) as sharing:
        assert sharing == TURNS
    assert "no nvidia-cuda-mps-control on the PATH" in caplog.text
    assert fake.calls() == []


@pytest.mark.parametrize(("gpus", "clients", "off"), [(["0"], 1, ""), ([], 4, ""), (["0"], 4, "0"), (["0"], 49, "")])
def test_nothing_starts_where_nothing_is_to_be_shared_or_it_is_switched_off(fake, monkeypatch, gpus, clients, off):
    monkeypatch.setenv(service.VARIABLE, off)
    with share_gpus(gpus, clients) as sharing:
        assert sharing == TURNS
    assert fake.calls() == []


@pytest.mark.parametrize(("there", "way"), [(True, "MPS"), (False, "time slices")])
def test_a_pipe_directory_of_the_user_is_left_alone(fake, monkeypatch, tmp_path, there, way):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if there:
        (tmp_path / "control").touch()
    with share_gpus(["0"], 2) as sharing:
        assert sharing == (way, {})
    assert fake.calls() == (["get_server_list"] if there else [])


@pytest.mark.parametrize(("answer", "way", "calls"), [(":", {}, 1), ("sleep 60", {}, 1), ("exit 1", None, 3)])
def test_a_daemon_in_the_usual_place_is_left_alone_but_not_its_remains(fake, monkeypatch, answer, way, calls):
    monkeypatch.setattr(service, "_ANSWER_SECONDS", 0.3)
    fake.write(answer=answer)
    service._DEFAULT_PIPE.mkdir()
    (service._DEFAULT_PIPE / "control").touch()
    with share_gpus(["0"], 2) as sharing:
        assert sharing.way == "MPS"
        assert (sharing.variables == {}) == (way == {})
    assert len(fake.calls()) == calls


def test_a_long_temporary_folder_is_not_used(fake, monkeypatch, tmp_path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(service.tempfile, "gettempdir", lambda: str(long))
    with share_gpus(["0"], 2) as sharing:
        assert folder_of(sharing).parent == Path("/tmp")


def test_a_full_disk_is_no_error(fake, monkeypatch, caplog):
    def fail(**_):
        raise OSError("no space left on device")

    monkeypatch.setattr(service.tempfile, "mkdtemp", fail)
    with share_gpus(["0"], 2) as sharing:
        assert sharing == TURNS
    assert "no space left on device" in caplog.text


@pytest.mark.gpu
def test_two_processes_use_a_gpu_at_the_same_time(caplog):
    code = (
        "import os, sys, time, torch\n"
        "x = torch.randn(256, 256, device='cuda')\n"
        "graph = torch.cuda.CUDAGraph()\n"
        "stream = torch.cuda.Stream()\n"
        "with torch.cuda.stream(stream):\n    x @ x\n"
        "torch.cuda.synchronize()\n"
        "with torch.cuda.graph(graph):\n    y = x @ x\n"
        "print('up', flush=True)\nsys.stdin.readline()\n"
        "for _ in range(100):\n    graph.replay()\n"
        "assert torch.allclose(y, x @ x)\nprint('done', flush=True)\n"
    )
    caplog.set_level(logging.INFO)
    with share_gpus([service.visible_gpu()], 2) as sharing:
        if sharing.way != "MPS" or not sharing.variables:
            pytest.skip(caplog.records[-1].getMessage() if caplog.records else "MPS is switched off")
        environment = {**os.environ, **sharing.variables[service.visible_gpu()]}
        folder = folder_of(sharing)
        words = [sys.executable, "-c", code]
        pipe = subprocess.PIPE
        pair = [subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe) for _ in range(2)]
        assert [one.stdout.readline() for one in pair] == [b"up\n"] * 2  # both have the GPU now
        listed = subprocess.run(
            ["nvidia-cuda-mps-control"], input=b"ps\n", env=environment, capture_output=True, timeout=20, check=True
        )
        assert all(str(one.pid).encode() in listed.stdout.split() for one in pair), listed.stdout
        assert [one.communicate(b"\n", timeout=60)[0] for one in pair] == [b"done\n"] * 2
    assert not folder.exists()
    assert not find_processes(folder / "pipe")
