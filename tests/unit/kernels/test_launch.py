"""Block sizes, and launches on the device of their tensors: fake tensors on a second GPU, recorded launches."""

import doctest
from importlib import import_module

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("triton")

KERNELS = ("asr_forward", "asr_backward", "moments_rescale", "grouped", "pool", "convolve")
MODULES = (
    *(f"kernels.{name}" for name in KERNELS),
    *("kernels.rsda", "kernels.pacs_augment", "kernels.adam"),
)


class Guard:
    """Stands for `torch.cuda.device` and `device_of`, which need a GPU."""

    current = 0

    def __init__(self, device):
        self.index = device.device.index if isinstance(device, torch.Tensor) else torch.device(device).index

    def __enter__(self):
        self.before, Guard.current = Guard.current, self.index

    def __exit__(self, *exception):
        Guard.current = self.before


def record(name, launches):
    launches.setdefault(name, set()).add(Guard.current)


class Recorded:
    """Stands for a kernel, or a function of one, and records its launches."""

    def __init__(self, kernel, name, launches):
        self.fn, self.name, self.launches = kernel.fn, name, launches

    def __getitem__(self, grid):
        return lambda *args, **options: record(self.name, self.launches)


@pytest.fixture
def launches(monkeypatch):
    from asrnorm.kernels.compiled import Launch

    found = {}
    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "device_of", Guard)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: Guard.current)
    monkeypatch.setattr(Launch, "__call__", lambda self, *_: record(self.kernel.fn.__name__, found))
    for name in MODULES:
        module = import_module(f"asrnorm.{name}")
        for entry, value in vars(module).copy().items():
            if type(value).__name__ == "JITFunction":
                monkeypatch.setattr(module, entry, Recorded(value, entry, found))
    return found


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="cuda:1")


def test_kernels_are_launched_on_the_device_of_their_tensors(launches, monkeypatch):
    from asrnorm.kernels import adam, autograd, convolve, flat_params, grouped, moments_rescale, pool, rsda
    from asrnorm.kernels import pacs_augment as resize

    nothing = [None] * 18
    with FakeTensorMode():
        for channels in (64, 512):  # a program a sample, and passes
            x, weights = empty(8, channels, 8, 8), flat_params.Weights(*nothing, empty(channels), empty(channels))
            y, saved = autograd.forward(x, weights, 1e-5, 1e-5, False)
            autograd.backward(y, x, saved, weights, 1e-5, 1e-5, False, input_only=True)
        x = empty(8, 64, 8, 8)
        stat = moments_rescale.channel_moments(x)
        moments_rescale.channel_moments_backward(x, stat, x, stat)
        moments_rescale.rescale(x, empty(4, 8, 64), 0.0, False)
        moments_rescale.rescale_backward(x, x, empty(4, 8, 64), 0.0, False)
        grouped.switch_norm(x, empty(2), empty(2), empty(64), empty(64), 1e-5, False)
        grouped.group_norm(x, 8, empty(64), empty(64), 1e-5, False)
        pool.max_pool(x)
        pool.PoolBackward.apply(x, empty(8, 64, 8, 8, dtype=torch.int8), torch.contiguous_format)
        convolve.convolve(empty(8, 3, 32, 32), empty(64, 3, 5, 5), empty(64))
        images, rows = empty(4, 3, 32, 32, dtype=torch.uint8), empty(3, dtype=torch.int64)
        rsda.apply_fused(images, rows, rows, empty(10, 30))
        monkeypatch.setattr(resize, "_tabulate", lambda *sizes: empty(2, 4, 32, dtype=torch.int32))
        resize.resize_fused(images, (30, 30))
        long = [empty(9000)]
        adam.adam_steps(long, long, long, long, [empty(())], empty(()), betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    assert len(launches) > 12, sorted(launches)
    assert {name: where for name, where in launches.items() if where != {1}} == {}


def test_the_examples_of_block_sizes_are_right():
    from asrnorm.kernels import launch

    found = doctest.testmod(launch)
    assert found.attempted
    assert not found.failed


def test_a_layout_has_the_strides_of_its_memory_format():
    from asrnorm.kernels.launch import Layout, layout_of

    x = torch.zeros(2, 3, 4, 5)
    assert layout_of(x) == Layout(num=2, channels=3, positions=20, stride_c=20, stride_s=1)
    last = x.contiguous(memory_format=torch.channels_last)
    assert layout_of(last) == Layout(num=2, channels=3, positions=20, stride_c=1, stride_s=3)


def test_sizes_of_blocks_and_parts():
    from asrnorm.kernels.launch import count_blocks, power_of_two, sample_parts

    assert [power_of_two(number) for number in (0, 1, 32, 33)] == [1, 1, 32, 64]
    assert [count_blocks(length, 32) for length in (0, 32, 65)] == [0, 1, 3]
    assert [sample_parts(num) for num in (1, 128, 256, 512, 5000)] == [1, 1, 2, 4, 8]
