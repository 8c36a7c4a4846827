import pytest
import torch

from asrnorm.bench import layer
from asrnorm.bench.layer import GPU_SHAPES, GROUP_NORM, Shape, measure, passes, run, ways
from asrnorm.norms import NORMS

SMALL = Shape("small", 2, 4, 3, 3, torch.float32, channels_last=False)


def test_the_floor_is_five_tensors_at_the_given_bandwidth():
    rows = measure(SMALL, torch.device("cpu"), 1e9, ways(False, False)[:3], quick=True, repeats=2)
    assert [row.path for row in rows] == ["bn", "bn, then relu", "asr"]
    for row in rows:
        assert row.extra["floor_ms"] == pytest.approx(5 * 2 * 4 * 9 * 4 / 1e9 * 1e3)
        assert row.extra["times_floor"] == pytest.approx(row.extra["ms"] / row.extra["floor_ms"])
        assert row.extra["ms"] == pytest.approx(2 / row.per_second * 1e3)
    assert rows[0].extra["memory_ratio"] == rows[0].extra["times_baseline"] == 1
    assert rows[2].extra["memory_ratio"] > 1  # the reference keeps more than BatchNorm


def test_a_run_compares_with_batch_norm_and_group_norm():
    (rows,) = run(quick=True, only="conv 1")
    assert rows[0].path == "bn"
    assert {row.path for row in rows} == {"bn", "bn, then relu", "asr", "asr, reference", GROUP_NORM, "in", "gn"}
    group = next(row for row in rows if row.path == GROUP_NORM)
    assert group.extra["times_group_norm"] == pytest.approx(1.0)


def test_both_passes_are_timed():
    module = NORMS["asr"](4)
    gradients = passes(module, torch.randn(2, 4, 3, 3), torch.ones(2, 4, 3, 3))
    assert len(gradients) == 1 + len(list(module.parameters()))
    assert gradients[0].shape == (2, 4, 3, 3)


def test_a_gpu_with_kernels_times_the_fused_layer_too():
    assert {"asr, fused", "asr+relu, fused", "asr, reference", "as", "ar", "ilm", "sn_in_ln"} <= {
        w.name for w in ways(True, True)
    }
    assert not any(way.name.endswith("fused") for way in ways(True, False))
    assert any(way.compiled for way in ways(False, False))


def test_the_shapes_are_those_of_the_targets():
    labels = [shape.label for shape in GPU_SHAPES]
    assert labels[:2] == [
        "ResNet-18 stem (128,64,112,112) bfloat16 channels-last",
        "ResNet-18 stem (128,64,112,112) bfloat16 NCHW",
    ]
    assert GPU_SHAPES[0].bytes == 128 * 64 * 112 * 112 * 2


@pytest.mark.gpu
def test_a_gpu_measures_every_layer_in_a_graph(monkeypatch):
    monkeypatch.setattr(layer, "GPU_SHAPES", (Shape("small", 8, 64, 8, 8),))
    (rows,) = layer.run("cuda", repeats=2)
    assert {way.name for way in ways(True, layer.has_fused(torch.device("cuda")))} == {row.path for row in rows}
    assert all(row.extra["peak_mb"] > 0 for row in rows)
