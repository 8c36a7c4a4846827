import pytest
import torch

from asrnorm.bench import step
from asrnorm.bench.step import QUICK_NETS, Net, Part, build_model, measure, measure_forward, run
from asrnorm.norms import ASRNorm2d

SMALL = Net("small", "digits_convnet", 2, 32, 10)
CPU = torch.device("cpu")


def test_a_step_changes_the_weights_and_a_forward_pass_does_not():
    part = Part(SMALL, "all", CPU)
    before = [parameter.clone() for parameter in part.model.parameters()]
    part.forward()
    assert all(torch.equal(a, b) for a, b in zip(before, part.model.parameters(), strict=True))
    part.step()
    assert not any(torch.equal(a, b) for a, b in zip(before[:2], part.model.parameters(), strict=False))


def test_a_captured_part_takes_the_same_steps():
    parts = [Part(SMALL, "all", CPU) for _ in range(2)]
    parts[0].step()
    parts[1].through_capture()()
    assert all(torch.equal(a, b) for a, b in zip(parts[0].model.parameters(), parts[1].model.parameters(), strict=True))
    parts[1].model.eval()
    assert parts[1].through_capture()().shape == (2, 10)


@pytest.mark.parametrize(("layers", "count"), [(None, 0), ("resnet-12", 12), ("all", 20)])
def test_the_named_layers_are_asr_norm(layers, count):
    model = build_model(Net("resnet", "resnet18", 2, 32, 7, gated=True), layers)
    found = [module for module in model.modules() if isinstance(module, ASRNorm2d)]
    assert len(found) == count
    assert all(module.gated_rescale for module in found)


def test_the_fastest_step_with_batch_norm_is_the_baseline(monkeypatch):
    rates = {"bn, eager": 1.0, "bn, CUDA graph": 4.0, "bn, compiled": 3.0, "asr all, reference, eager": 2.0}

    def cases(prefix, *_, **__):
        return {name: None for name in rates if name.startswith(f"{prefix}, ")}

    def compare(work, found, *, baseline, repeats, warmup):
        return [step.Row(work, n, rates[n], rates[n], rates[n], rates[n], baseline, repeats) for n in found]

    monkeypatch.setattr(step, "_try_ways", cases)
    monkeypatch.setattr(step, "compare", compare)
    rows = {row.path: row for row in measure(SMALL, CPU, 2, False)}
    assert {row.baseline for row in rows.values()} == {"bn, CUDA graph"}
    assert rows["asr all, reference, eager"].extra["times_baseline"] == 2.0


def test_a_run_measures_steps_and_a_forward_pass():
    works = [rows[0].work for rows in run(quick=True, only="demo")]
    assert works == [f"training step, {QUICK_NETS[0].label}", f"forward in evaluation, {QUICK_NETS[0].label}"]


def test_the_forward_pass_is_that_of_evaluation():
    rows = measure_forward(SMALL, CPU, 1, False)
    assert [row.path for row in rows] == ["bn, eager", "asr all, eager", "asr all, reference, eager"]
    assert rows[0].extra["ms"] == pytest.approx(2e3 / rows[0].per_second)


@pytest.mark.gpu
def test_a_gpu_measures_eager_and_graph_and_memory():
    rows = measure(Net("wrn", "wrn_16_4", 8, 32, 10), torch.device("cuda"), 2, False)
    assert {"bn, eager", "bn, CUDA graph", "bn, asrnorm.capture", "asr all, reference, CUDA graph"} <= {
        row.path for row in rows
    }
    assert all(row.extra["activation_mb"] > 0 for row in rows)
    assert rows[0].extra["memory_ratio"] == 1.0
