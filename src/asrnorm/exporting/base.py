"""The interface of a file format, and the tracing of a model into a graph of PyTorch's own operators."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from asrnorm import ops
from asrnorm.core.config import RunConfig
from asrnorm.core.errors import InputError, first_line
from asrnorm.models import Classifier
from asrnorm.training import LoadedRun

Network = Callable[[Tensor], Tensor]  # images `(n, 3, h, w)` in [0, 1] to logits
INPUT = "images"
_TRACED_BATCH = 2  # for a dynamic batch; tracing specializes on a batch of one
# Namespaces of operators that every build of PyTorch has.
_PLAIN = frozenset({"aten", "prim", "prims", "higher_order", "_operator", "math", "builtins"})


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A model to export, and the input that its file takes."""

    run: LoadedRun
    model: Classifier  # in eval mode on the CPU, in the precision of the file
    size: tuple[int, int]  # height and width of the images
    batch: int | None = None  # images at a time; `None` is any number
    opset: int | None = None  # version of the ONNX operators; `None` is the exporter's default


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A file format."""

    suffix: str
    encode: Callable[[ExportRequest], tuple[bytes, dict[str, Any]]]  # the file, and additional entries of its card
    open: Callable[[Path, ExportRequest], Network]  # the network that the file holds
    sidecar: Callable[[RunConfig], str] | None = None  # the file beside it, with the ending `formats.CONFIG`
    is_traced: bool = True  # it holds the computation, in float32, and runs without this package
    has_opset: bool = False  # it uses `ExportRequest.opset`


def trace(request: ExportRequest) -> ExportedProgram:
    """Return the graph of a model on the reference path, without paths of this machine."""
    height, width = request.size
    images = torch.rand((request.batch or _TRACED_BATCH, 3, height, width))
    with ops.use_backend("reference"), torch.no_grad():
        try:
            request.model(images)
        except RuntimeError as error:
            own = "x".join(map(str, request.run.suite.image_size))
            raise InputError(
                f"the network takes no images of {height}x{width}; it was trained on {own} ({first_line(error)})"
            ) from error
        program = torch.export.export(_Named(request.model).eval(), (images,), dynamic_shapes=dynamic_axes(request))
    for node in (node for node in program.graph.nodes if node.op == "call_function"):
        namespace = getattr(node.target, "namespace", None) or getattr(node.target, "__module__", "")
        if namespace not in _PLAIN and not str(namespace).startswith("torch."):
            raise InputError(f"the file would need the custom operator {node.target}; export traces plain ones only")
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)  # lines of source with their paths
    return program


class _Named(nn.Module):
    """Gives the input its name in the file."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


def dynamic_axes(request: ExportRequest) -> dict[str, dict[int, Dim]] | None:
    """Return the dynamic axes of the input, by name."""
    return {INPUT: {0: Dim("batch")}} if request.batch is None else None
