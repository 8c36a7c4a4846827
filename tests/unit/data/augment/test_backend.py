import builtins
import warnings

import pytest
import torch

from asrnorm.data.augment import backend


class OnCuda:
    """As much of a tensor as the choice looks at."""

    device = torch.device("cuda", 0)

    def __init__(self, side=32, dtype=torch.uint8):
        self.shape = (4, 3, side, side)
        self.dtype = dtype


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(backend.torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.delenv("ASRNORM_BACKEND", raising=False)
    backend._load.cache_clear()
    yield monkeypatch
    backend._load.cache_clear()


def test_small_images_on_a_gpu_take_the_kernel(gpu):
    pytest.importorskip("triton")
    assert backend.find_fused(OnCuda(32)).__name__ == "apply_fused"
    assert backend.find_fused(OnCuda(227)) is None


@pytest.mark.parametrize(
    ("images", "size", "fits"),
    [
        (OnCuda(227), (222, 222), True),
        (OnCuda(227, torch.float32), (222, 222), True),
        (OnCuda(64), (64, 200), True),
        (OnCuda(227, torch.float64), (222, 222), False),
        (OnCuda(227), (222, 100), False),  # too many taps
        (OnCuda(227), (2048, 2049), False),  # too large a sum
        (OnCuda(0), (2, 2), False),
        (OnCuda(8), (8, 0), False),
    ],
)
def test_pacs_takes_its_kernels_where_images_and_result_fit(gpu, images, size, fits):
    pytest.importorskip("triton")
    assert (backend.find_fused_pacs(images, size) is not None) == fits


def test_the_environment_can_ask_for_the_reference(gpu):
    gpu.setenv("ASRNORM_BACKEND", "reference")
    assert backend.find_fused(OnCuda()) is None
    assert backend.find_fused_pacs(OnCuda(), (30, 30)) is None
    assert backend.find_fused_resize(OnCuda(), (30, 30)) is None


def test_whole_images_are_resized_by_a_kernel_unless_they_shrink_much(gpu):
    pytest.importorskip("triton")
    assert backend.find_fused_resize(OnCuda(227), (222, 222)).__name__ == "resize_fused"
    assert backend.find_fused_resize(OnCuda(227), (100, 222)) is None
    assert backend.find_fused_resize(OnCuda(8), (8, 0)) is None


def test_without_triton_there_is_one_warning_that_says_why(gpu):
    whole = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "asrnorm.kernels":
            raise ModuleNotFoundError("No module named 'triton'")
        return whole(name, *args, **kwargs)

    gpu.setattr(builtins, "__import__", refuse)
    with pytest.warns(RuntimeWarning, match="No module named 'triton'"):
        assert backend.find_fused(OnCuda()) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert backend.find_fused(OnCuda()) is None
        assert backend.find_fused_pacs(OnCuda(), (30, 30)) is None


def test_an_old_gpu_is_named(gpu):
    gpu.setattr(backend.torch.cuda, "get_device_capability", lambda device: (6, 1))
    with pytest.warns(RuntimeWarning, match="6.1"):
        assert backend.find_fused(OnCuda()) is None
