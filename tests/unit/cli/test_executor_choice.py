import sys
from types import SimpleNamespace

from asrnorm.cli.reproduce import find_gpus, open_executor


def test_the_gpus_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert find_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-abc")
    assert find_gpus() == ["5", "GPU-abc"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert find_gpus() == []


def test_runs_on_the_cpu_take_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    jobs = [SimpleNamespace(config=SimpleNamespace(device=device)) for device in ("cpu", "auto")]
    assert open_executor(jobs[:1], None, None, None, tmp_path).slots() == 1
    assert open_executor(jobs, None, None, None, tmp_path).slots() == 4


def test_slurm_gets_its_options_and_a_folder_among_the_runs(monkeypatch, tmp_path):
    opened = []
    stand_in = SimpleNamespace(SlurmExecutor=lambda *words: opened.append(words))
    monkeypatch.setitem(sys.modules, "asrnorm.launch.slurm", stand_in)
    open_executor([], 3, None, "timeout_min=5,slurm_partition=gpu", tmp_path)
    assert opened == [(tmp_path / ".slurm", {"timeout_min": 5, "slurm_partition": "gpu"}, 3)]
