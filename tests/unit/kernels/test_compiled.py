"""Which launches go past Triton, with a recorded kernel in place of a compiled one."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from asrnorm.kernels import compiled


class Kernel:
    """Stands for a kernel of two tensors, a size and two options."""

    arg_names = ("x", "y", "size", "BLOCK", "RELU")

    def __init__(self, compiles=True):
        self.by_triton, self.directly, self.compiles = [], [], compiles

    def __getitem__(self, grid):
        def run(*tensors_and_sizes, **options):
            self.by_triton.append((grid, tensors_and_sizes, options))
            if self.compiles:
                run = lambda *args: self.directly.append(args)  # noqa: E731
                return SimpleNamespace(run=run, function="function", packed_metadata="metadata")
            return None

        return run


@pytest.fixture(autouse=True)
def _stream(monkeypatch):
    active = SimpleNamespace(get_current_stream=lambda device: f"stream {device}")
    monkeypatch.setattr(compiled, "driver", SimpleNamespace(active=active))


def make(kernel):
    return compiled.Launch(kernel, (7, 2), (64,), {"RELU": True, "BLOCK": 16, "num_warps": 4})


def test_the_second_launch_passes_addresses_sizes_and_options_in_the_kernels_order():
    kernel, x, y = Kernel(), torch.zeros(4), torch.zeros(4)
    launch = make(kernel)
    launch(x, y)
    assert kernel.by_triton == [((7, 2), (x, y, 64), {"RELU": True, "BLOCK": 16, "num_warps": 4})]
    launch(y, None)
    launch(y, x)
    expected = (
        7,
        2,
        1,
        "stream -1",
        "function",
        "metadata",
        None,
        None,
        None,
        y.data_ptr(),
        x.data_ptr(),
        64,
        16,
        True,
    )
    assert kernel.directly == [expected]
    assert len(kernel.by_triton) == 2, "without y it is another kernel"


@pytest.mark.parametrize("change", ["dtype", "alignment", "hook"])
def test_triton_decides_where_another_kernel_may_fit(change, monkeypatch):
    kernel, x = Kernel(), torch.zeros(9)
    launch = make(kernel)
    launch(x, x)
    if change == "hook":
        monkeypatch.setattr(compiled.knobs.runtime, "launch_enter_hook", lambda metadata: None)
    other = {"dtype": x.double(), "alignment": x[1:], "hook": x}[change]
    launch(x, other)
    assert (len(kernel.by_triton), kernel.directly) == (2, [])


def test_an_unaligned_first_launch_is_not_kept():
    kernel, x = Kernel(), torch.zeros(9)
    launch = make(kernel)
    launch(x[1:], x)
    launch(x, x)
    assert (len(kernel.by_triton), kernel.directly) == (2, [])


def test_an_interpreted_kernel_is_always_called():
    kernel, x = Kernel(compiles=False), torch.zeros(4)
    launch = make(kernel)
    launch(x, x)
    launch(x, x)
    assert len(kernel.by_triton) == 2
