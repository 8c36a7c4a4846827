import pytest

from asrnorm.bench.corruptions import ALL_CORES, BASELINE, run
from asrnorm.core.errors import InputError, UnknownNameError


def test_a_corruption_is_measured_beside_the_reference(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    parts = list(run(quick=True, only="fro"))
    assert parts == []  # no photographs here
    (small, large) = run(quick=True, only="contrast")
    assert [small[0].work, large[0].work] == ["contrast, 32x32", "contrast, 224x224"]
    for rows in (small, large):
        assert [row.path for row in rows] == [BASELINE, ALL_CORES, "tensors, CPU"]
        assert rows[0].ratio == 1.0


def test_a_text_that_no_corruption_has_is_named():
    with pytest.raises(UnknownNameError):
        next(run(quick=True, only="sepia"))


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(InputError):
        next(run("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["fog", "jpeg_compression"])
def test_a_gpu_has_its_rows(name):
    rows = [row.path for row in next(run("cuda", quick=True, only=name))][3:]
    paths = [path for path in rows if path != "torchvision, GPU"]  # where it is installed and has one
    assert paths == ["tensors, GPU", "tensors, GPU, CUDA graph"][: 1 if name == "jpeg_compression" else 2]
