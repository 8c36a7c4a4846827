"""A model as a graph of PyTorch's own operators, along the plain reference path."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from asrnorm import ops
from asrnorm.errors import InputError, first_line
from asrnorm.exporting.base import Subject

INPUT = "images"
# Two, where the batch is left open: tracing takes a batch of one for a constant.
_TRACED_BATCH = 2
# Namespaces of operators that every build of PyTorch has.
_PLAIN = frozenset({"aten", "prim", "prims", "higher_order", "_operator", "math", "builtins"})


class _Named(nn.Module):
    """Gives the input its name in the file."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


def reference_path() -> AbstractContextManager[object]:
    """Return the context in which no fused kernel is chosen."""
    return ops.use_backend("reference")


def open_axes(subject: Subject) -> dict[str, dict[int, Dim]] | None:
    """Return the axes of the input whose length the file leaves open, by name."""
    return {INPUT: {0: Dim("batch")}} if subject.batch is None else None


def trace(subject: Subject) -> ExportedProgram:
    """Return the graph of a model, without a word of where it was traced.

    Raises:
        InputError: the network does not take images of that size, or computes with an operator that a process without
            this package would not have.
    """
    height, width = subject.size
    images = torch.rand((subject.batch or _TRACED_BATCH, 3, height, width))
    with reference_path(), torch.no_grad():
        try:
            subject.model(images)
        except RuntimeError as error:
            own = "x".join(map(str, subject.run.suite.image_size))
            raise InputError(
                f"the network takes no images of {height}x{width}; it was trained on {own} ({first_line(error)})"
            ) from error
        program = torch.export.export(_Named(subject.model).eval(), (images,), dynamic_shapes=open_axes(subject))
    refuse_foreign_operators(program)
    _forget_origin(program)
    return program


def refuse_foreign_operators(program: ExportedProgram) -> None:
    """Refuse a graph that calls operators registered by anyone but PyTorch.

    Raises:
        InputError: with the operator's name.
    """
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        namespace = getattr(node.target, "namespace", None) or getattr(node.target, "__module__", "")
        if namespace not in _PLAIN and not str(namespace).startswith("torch."):
            raise InputError(f"the file would need the custom operator {node.target}; export traces plain ones only")


def _forget_origin(program: ExportedProgram) -> None:
    """Drop the lines of source that tracing keeps at every node: paths of this machine."""
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
