"""`torch.export` and ONNX of every norm, with dynamic batch and size, equal to eager."""

import io
import warnings

import numpy as np
import pytest
import torch

from helpers.norm_family import ALL, randomized

DYNAMIC = {0: torch.export.Dim("n"), 2: torch.export.Dim("h"), 3: torch.export.Dim("w")}
OTHER_SHAPES = [(2, 16, 6, 7), (5, 16, 9, 4)]


@pytest.mark.parametrize("name", ALL)
def test_exported_program_agrees_at_other_batches_and_sizes(name):
    layer = randomized(name, 16).eval()
    program = torch.export.export(layer, (torch.randn(3, 16, 8, 5),), dynamic_shapes=({**DYNAMIC},))
    for shape in OTHER_SHAPES:
        x = torch.randn(shape)
        torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"none"}))
def test_onnxruntime_agrees_at_other_batches_and_sizes(name):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'asrnorm[onnx]'")
    pytest.importorskip("onnxscript", reason="pip install 'asrnorm[onnx]'")
    layer = randomized(name, 16).eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program = torch.onnx.export(
            layer, (torch.randn(3, 16, 8, 5),), dynamic_shapes=({**DYNAMIC},), dynamo=True, verbose=False
        )
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    for shape in OTHER_SHAPES:
        x = torch.randn(shape)
        (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        np.testing.assert_allclose(y, layer(x).detach().numpy(), rtol=1e-5, atol=1e-5)
