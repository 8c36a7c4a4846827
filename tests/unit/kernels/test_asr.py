import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from asrnorm import ASRNorm2d, ops
from asrnorm.kernels import launch
from helpers.interpreter import interpret
from helpers.kernel_case import KernelCase, check_kernels


def test_the_kernels_equal_the_reference_in_the_interpreter():
    found = int(interpret("interpreted_asr"))
    from helpers.interpreted_asr import CASES, IN_REGISTERS

    assert found == len(CASES) + len(IN_REGISTERS)


@pytest.mark.gpu
def test_a_gpu_is_as_exact_with_activations_in_registers():
    from helpers.interpreted_asr import IN_REGISTERS, RELU

    wide = [
        KernelCase(shape, "asr", RELU, torch.bfloat16, "channels_last")
        for shape in ((9, 16, 32, 32), (9, 64, 32, 32), (9, 128, 16, 16), (9, 64, 28, 28), (300, 64, 8, 8))
    ]
    for case in (*IN_REGISTERS, *wide):
        check_kernels(case, "cuda")


def test_a_sample_that_fits_stays_in_registers():
    full = launch.register_tiles(launch.Layout(2, 64, 1024, 1, 64), 2, 16)
    assert full == (launch.Block(64, 64, 16), 16, True)
    padded = launch.register_tiles(launch.Layout(2, 48, 63, 1, 48), 2, 16)
    assert padded == (launch.Block(64, 16, 4), 4, False)


@pytest.mark.parametrize(
    ("channels", "positions", "itemsize"),
    [
        pytest.param(64, 1025, 2, id="too much"),
        pytest.param(64, 512, 4, id="too much in float32"),
        pytest.param(16, 31, 2, id="mostly padding"),
        pytest.param(100, 256, 2, id="unaligned rows"),
    ],
)
def test_a_sample_that_does_not_fit_is_read_twice(channels, positions, itemsize):
    assert launch.register_tiles(launch.Layout(2, channels, positions, 1, channels), itemsize, 16) is None


shapes = st.tuples(
    st.integers(1, 40),
    st.sampled_from([1, 3, 16, 24, 64, 100, 128, 160, 256, 520]),
    st.integers(1, 20),
    st.integers(1, 20),
)
options = st.fixed_dictionaries(
    {
        "gated_rescale": st.booleans(),
        "share_rescale_encoder": st.booleans(),
        "bias": st.booleans(),
        "per_channel_lambda": st.booleans(),
        "activation": st.sampled_from([None, "relu"]),
    }
)


@pytest.mark.gpu
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    shapes,
    options,
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    st.sampled_from(["contiguous", "channels_last", "sliced", "transposed"]),
    st.sampled_from([0.0, 1.0, 30.0]),
)
def test_a_gpu_is_as_exact_as_eager(shape, chosen, dtype, layout, shift):
    case = KernelCase(shape, "asr", chosen, dtype, layout, shift)
    check_kernels(case, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("norm", ["as", "ar", "in", "gn", "ln", "ilm", "sn", "sn_in_ln"])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_norms_share_the_kernels(norm, layout, dtype):
    case = KernelCase((9, 64, 12, 12), norm, {}, dtype, layout)
    check_kernels(case, "cuda")


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
def test_it_compiles_without_a_break_and_under_autocast():
    layer = ASRNorm2d(64, device="cuda")
    x, dy = (torch.randn(8, 64, 16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    inputs = [x.requires_grad_(), *layer.parameters()]
    with torch.autocast("cuda", torch.bfloat16):
        compiled, eager = (
            torch.autograd.grad(way(x), inputs, dy) for way in (torch.compile(layer, fullgraph=True), layer)
        )
    for mine, theirs in zip(compiled, eager, strict=True):
        assert torch.equal(mine, theirs), "the same kernels"


@pytest.mark.gpu
def test_it_can_be_captured_in_a_graph():
    layer, x = ASRNorm2d(128, device="cuda"), torch.randn(8, 128, 8, 8, device="cuda", requires_grad=True)

    def step():
        return torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        eager = step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    for mine, theirs in zip(captured, eager, strict=True):
        assert torch.equal(mine, theirs), "no atomics: the same bits every time"


@pytest.mark.gpu
def test_a_second_derivative_goes_through_the_reference():
    layer, x = ASRNorm2d(16, device="cuda"), torch.randn(4, 16, 6, 6, device="cuda", requires_grad=True)
    found = []
    for backend in ("reference", "triton"):
        with ops.use_backend(backend):
            (slope,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *layer.parameters()]))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
    assert found[1][0].abs().max() > 0


def make_network():
    def block(inputs, channels):
        convolution = nn.Conv2d(inputs, channels, 3, padding=1, bias=False)
        return convolution, ASRNorm2d(channels, activation="relu"), nn.AvgPool2d(2)

    # Fused, in registers or not, and in passes.
    layers = [*block(3, 32), *block(32, 64), *block(64, 256)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


@pytest.mark.gpu
def test_five_hundred_steps_have_the_loss_curve_of_the_reference():
    torch.manual_seed(0)
    start = make_network().cuda().to(memory_format=torch.channels_last)
    labels = torch.randint(10, (16, 64), device="cuda")
    images = 0.8 * torch.rand(10, 3, 32, 32, device="cuda")[labels] + 0.2 * torch.rand(16, 64, 3, 32, 32, device="cuda")
    curves = []
    for backend in ("reference", "triton", "triton"):
        net = copy.deepcopy(start)
        # A small rate without momentum: otherwise rounding moves the curve by more than an error in a kernel would.
        optimizer = torch.optim.SGD(net.parameters(), lr=0.015)
        losses = []
        with ops.use_backend(backend):
            for step in range(500):
                with torch.autocast("cuda", torch.bfloat16):
                    loss = F.cross_entropy(net(images[step % 16]), labels[step % 16])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
        curves.append(torch.stack(losses).float().cpu())
    reference, mine, again = (curve.reshape(-1, 50).mean(1) for curve in curves)
    assert reference[-1] < reference[0] * 0.8, "it learns"
    # Two runs of the same kernels drift apart too, because the convolutions add in no fixed order.
    drift = (mine - again).abs().max()
    assert (mine - reference).abs().max() <= max(3 * drift, 0.02 * reference.max())
