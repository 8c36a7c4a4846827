"""How far float32, bfloat16 and float16 are from the independent float64 computation, for every norm.

Parameters are float32, as in mixed-precision training; the input has the dtype. The reference reads the very same
rounded numbers, so the error is that of the layer alone: of its arithmetic, and of the rounding of its output.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from helpers.norm_case import OPTIONED, PLAIN, NormCase, arrays, asr_options, draw_input, reference

BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SHAPES = [(3, 24, 16, 16), (3, 64, 7, 9), (3, 6, 50)]
# Scale and offset of the input: activations as they come, small ones, large ones, and a mean far above the spread.
RANGES = {"plain": (1.0, 0.0), "small": (1e-2, 0.0), "large": (1e2, 0.0), "offset": (1.0, 20.0)}

Errors = dict[tuple[str, torch.dtype], list[tuple[float, str]]]


@pytest.fixture(scope="module")
def errors(request: pytest.FixtureRequest) -> Iterator[Errors]:
    """Collects every relative error; `pytest -v` ends with a table of the largest for each norm and dtype."""
    found: Errors = defaultdict(list)
    yield found
    plugins = request.config.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    if reporter is None or capture is None or request.config.get_verbosity() < 1:
        return
    with capture.global_and_fixture_disabled():
        for line in ["", *table(found)]:
            reporter.write_line(line)


def table(found: Errors) -> Iterator[str]:
    names = sorted({name for name, _ in found})
    yield "largest relative error  " + "".join(f"{str(dtype).removeprefix('torch.'):>12}" for dtype in BOUNDS)
    for name in names:
        yield f"{name:24}" + "".join(f"{max(found[name, dtype])[0]:12.2e}" for dtype in BOUNDS)
    for dtype in BOUNDS:
        yield "{}: {:.2e} in {}".format(dtype, *max(max(found[name, dtype]) for name in names))


def relative_error(case: NormCase, shape: tuple[int, ...], scale: float, offset: float, dtype: torch.dtype) -> float:
    x = (offset + scale * draw_input(shape)).to(dtype)
    layer = case.layer(shape[1], dtype=torch.float32)
    for key, buffer in layer.named_buffers():  # running statistics that suit the input, as those of a trained layer do
        if key.endswith("running_mean"):
            buffer.mul_(scale).add_(offset)
        if key.endswith("running_var"):
            buffer.mul_(scale**2)
    truth = reference(case, arrays(layer), x.double().numpy())
    with torch.no_grad():
        y = layer(x)
    assert y.dtype == x.dtype
    return float(np.linalg.norm(y.double().numpy() - truth) / np.linalg.norm(truth))


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("case", [*PLAIN, *OPTIONED, *asr_options()], ids=str)
def test_error_against_float64(case, dtype, errors):
    found = [
        (relative_error(case, shape, scale, offset, dtype), f"{case}, {shape}, {label} input")
        for shape in SHAPES
        for label, (scale, offset) in RANGES.items()
    ]
    errors[case.name, dtype] += found
    assert max(found)[0] < BOUNDS[dtype], max(found)
