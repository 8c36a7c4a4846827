import pytest
import torch

from asrnorm.bench import ascent
from asrnorm.bench.step import QUICK_NETS, Net
from asrnorm.methods.ascent import Ascent

SMALL = Net("small", "digits_convnet", 2, 32, 10)


def test_what_is_timed_is_an_ascent_and_counts_its_image_gradients(monkeypatch):
    climbed = []
    step = Ascent.step
    monkeypatch.setattr(
        Ascent, "step", lambda self, model, x, *rest: climbed.append(len(x)) or step(self, model, x, *rest)
    )
    case = ascent._make(SMALL, "all", torch.device("cpu"), "reference", captured=False)
    reached = case.run()
    assert reached.shape == (2, 3, 32, 32)
    assert sum(climbed) == case.items == 10


def test_a_run_measures_both_norms_a_step_at_a_time():
    (rows,) = ascent.run(quick=True)
    assert [row.path for row in rows] == ["bn, eager", "asr, reference, eager"]
    assert {row.work for row in rows} == {f"step of an ascent, {QUICK_NETS[0].label}"}
    assert rows[0].extra["ms"] == pytest.approx(4e3 / rows[0].per_second)
    assert rows[1].extra["times_baseline"] == pytest.approx(rows[0].per_second / rows[1].per_second)


@pytest.mark.gpu
def test_a_gpu_measures_graphs_and_plain_operations():
    rows = ascent.measure(Net("wrn", "wrn_16_4", 8, 32, 10), torch.device("cuda"), 2)
    names = {"bn", "asr, fused", "asr, reference"}
    assert {row.path for row in rows} == {f"{name}, {way}" for name in names for way in ("CUDA graph", "eager")}
    assert all(row.baseline.startswith("bn, ") for row in rows)
