"""Compare the kernels of ASR-Norm and its relatives with the reference, in Triton's interpreter."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from asrnorm import ops
from asrnorm.kernels import autograd, launch
from helpers.kernel_case import KernelCase, check_kernels, run_kernels_on_cpu

RELU = {"activation": "relu"}
GATED = {"gated_rescale": True, "share_rescale_encoder": False, "activation": "relu"}
CASES = (
    KernelCase((3, 16, 4, 4)),
    KernelCase((5, 10, 7, 3), options={"activation": "relu"}, layout="channels_last"),
    KernelCase((2, 33, 5, 5), options=GATED),
    KernelCase((3, 8, 9), options={"per_channel_lambda": True, "gated_rescale": True, "bias": False}),
    KernelCase((2, 6, 4, 4), options={"residual": False}, layout="sliced"),
    KernelCase((2, 5, 3, 4), options={"statistics": "layer"}, layout="transposed"),
    KernelCase((4, 6, 5, 5), options={"statistics": "batch"}),
    KernelCase((4, 6, 5, 5), options=RELU, limit=0.01),
    KernelCase((4, 7, 1, 1)),
    KernelCase((1, 1, 2, 2), shift=300.0),
    KernelCase((3, 16, 4, 4), shift=3000.0),  # beyond the reach of the learned mean
    KernelCase((3, 9, 6, 6), "as", layout="channels_last"),
    KernelCase((3, 9, 6, 6), "ar", options={"gated_rescale": True}),
    KernelCase((3, 9, 6, 6), "in", shift=300.0),
    KernelCase((3, 12, 4, 6), "gn", options={"num_groups": 3}),
    KernelCase((3, 15, 1, 6), "gn", options={"num_groups": 5}, dtype=torch.bfloat16, shift=30.0),
    KernelCase((3, 12, 4, 6), "ln", layout="channels_last"),
    KernelCase((1, 4, 36, 36), "gn", options={"num_groups": 2}, layout="channels_last"),
    KernelCase((3, 32, 4, 4), "ilm"),
    KernelCase((3, 9, 6, 6), "sn", shift=300.0),
    KernelCase((3, 12, 4, 6), "sn_in_ln", dtype=torch.bfloat16, layout="channels_last"),
    KernelCase((17, 20, 6, 6), dtype=torch.bfloat16, layout="channels_last"),
    KernelCase((5, 20, 6, 6), dtype=torch.float16, options=GATED),
    KernelCase((1, 128, 4, 8), options={"stan_ratio": 1}),  # more weights than a program loads at a time
    # Too wide to be fused: the networks are matrix products over all samples.
    KernelCase((3, 130, 4, 4), layout="channels_last"),
    KernelCase((35, 130, 3, 3), options={**GATED, "per_channel_lambda": True}),
    KernelCase((2, 130, 4, 4), options={"residual": False, "bias": False}, dtype=torch.bfloat16),
    KernelCase((2, 130, 9, 9), shift=300.0, layout="channels_last"),  # several tiles of positions
    KernelCase((2, 130, 4, 4), shift=-3000.0),
    KernelCase((2, 130, 4, 4), "as"),
    KernelCase((2, 130, 4, 4), "ar"),
    KernelCase((2, 130, 4, 4), "in"),
)

IN_REGISTERS = (
    KernelCase((2, 16, 8, 8), dtype=torch.bfloat16, layout="channels_last"),
    KernelCase((2, 48, 9, 7), options=RELU, dtype=torch.bfloat16, layout="channels_last", shift=30.0),
    KernelCase((2, 24, 12, 8), options=GATED, dtype=torch.float16),
    KernelCase((2, 16, 12, 11), options=RELU, layout="channels_last", shift=300.0),
    KernelCase((1, 64, 23, 24), options=RELU, dtype=torch.bfloat16, layout="channels_last"),
    KernelCase((1, 30, 36, 40), "in", dtype=torch.float16),
)
"""Cases whose samples stay in registers in the forward pass, in whole and in padded tiles."""

BACKWARD_IN_PASSES = (
    *CASES[:6],
    *(case for case in CASES if case.norm in ("as", "ar", "in") and case.shape[1] < launch.SAMPLE_CHANNELS),
    *IN_REGISTERS[1:3],
)
"""Cases whose backward pass is checked in passes as well as fused."""

LARGE = KernelCase((2, 64, 24, 28), options=RELU, layout="channels_last")
IN_PASSES = (*CASES[:4], *IN_REGISTERS[1:3], LARGE)
"""Cases that are checked in passes both ways as well as fused."""

PART = 33
IN_PARTS = KernelCase((2 * PART + 1, 5, 2, 1), options=GATED)
"""More samples than one partial sum takes, and a partial sum of more than a program reads at a time."""


@contextmanager
def limit(name: str, value: int) -> Iterator[None]:
    """Replace a limit of `launch`, and forget the launches that were built with the other one."""
    with patch.object(launch, name, value):
        autograd._launches.cache_clear()
        yield
    autograd._launches.cache_clear()


def second_derivatives() -> None:
    """Check that second derivatives are those of the reference, and not zero."""
    for norm, options in (("asr", {}), ("gn", {"num_groups": 3})):
        case = KernelCase((3, 6, 4, 4), norm, options)
        found = []
        for backend in ("reference", "triton"):
            layer, (x, dy) = case.layer(), case.tensors()
            x.requires_grad_()
            with ops.use_backend(backend):  # type: ignore[arg-type]
                (slope,) = torch.autograd.grad(layer(x, "relu"), x, dy, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), [x, *layer.parameters()], allow_unused=True))
        for mine, theirs in zip(found[1], found[0], strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        assert any(value is not None and bool(value.abs().max() > 0) for value in found[1])


def gradient_of_input_only() -> None:
    """Check that frozen weights launch no kernel for their gradients, and leave that of the input unchanged."""
    case = KernelCase((3, 16, 4, 4), options=RELU)
    module, (x, dy) = case.layer(), case.tensors()
    with ops.use_backend("triton"):
        (before,) = torch.autograd.grad(module(x.requires_grad_()), x, dy)
        module.requires_grad_(False)
        with patch.object(autograd, "_weight_gradients", None):
            (after,) = torch.autograd.grad(module(x), x, dy)
    assert torch.equal(before, after)
    assert bool(after.abs().max() > 0)


def strided_weights() -> None:
    """Check weights that are not contiguous, such as those of a parametrized layer."""
    case = KernelCase((3, 8, 4, 4), options=GATED)
    module, (x, dy) = case.layer(), case.tensors()
    torch.nn.utils.parametrizations.orthogonal(module.stan_encoder)
    module.gamma_bias = torch.nn.Parameter(torch.randn(16)[::2])
    assert not module.stan_encoder.weight.is_contiguous()
    assert not module.gamma_bias.is_contiguous()
    found = []
    for backend in ("reference", "triton"):
        with ops.use_backend(backend):  # type: ignore[arg-type]
            y = module(x.requires_grad_())
        found.append([y, *torch.autograd.grad(y, [x, *module.parameters()], dy)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def compiled() -> None:
    """Check that a traced layer is one operator each way, also under autocast, with the same result."""
    case = KernelCase((3, 6, 4, 4), options={"activation": "relu"}, dtype=torch.bfloat16)
    layer, (x, dy) = case.layer(), case.tensors()
    x.requires_grad_()
    inputs = [x, *layer.parameters()]
    graphs: list[set[str]] = []

    def record(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append({str(node.target) for node in graph.graph.nodes})
        return make_boxed_func(graph.forward)

    traced = torch.compile(layer, fullgraph=True, backend=aot_autograd(fw_compiler=record, bw_compiler=record))
    with torch.autocast("cpu", torch.bfloat16):
        mine = torch.autograd.grad(traced(x), inputs, dy, allow_unused=True)
        theirs = torch.autograd.grad(layer(x), inputs, dy, allow_unused=True)
    assert "asrnorm.asr_norm.default" in graphs[0], graphs[0]
    assert "asrnorm.asr_norm_backward.default" in graphs[1], graphs[1]
    assert not any("mm" in name for graph in graphs for name in graph), "the networks are in the kernels"
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


def main() -> int:
    """Check every case; return how many there were."""
    run_kernels_on_cpu()
    for case in IN_REGISTERS:
        assert launch.register_tiles(launch.layout_of(case.tensors()[0]), case.dtype.itemsize, 16) is not None, case
    for case in (*CASES, *IN_REGISTERS):
        check_kernels(case)
    check_kernels(LARGE)
    with limit("MANY_SAMPLES", 1):
        for case in BACKWARD_IN_PASSES:
            check_kernels(case)
    with limit("LARGE_SAMPLE", 1):
        for case in IN_PASSES:
            check_kernels(case)
    with limit("_SAMPLES_PER_PART", PART):
        assert launch.sample_parts(IN_PARTS.shape[0]) == 2
        for many in (1, 1 << 30):
            with limit("MANY_SAMPLES", many):
                check_kernels(IN_PARTS)
    second_derivatives()
    gradient_of_input_only()
    strided_weights()
    compiled()
    return len(CASES) + len(IN_REGISTERS)


if __name__ == "__main__":
    sys.stdout.write(str(main()))
