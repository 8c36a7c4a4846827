"""What is exported, and what a file format must be able to do with it.

A model as a graph of PyTorch's own operators, along the plain reference path.
"""

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from asrnorm import ops
from asrnorm.core.errors import InputError, MissingDependencyError, first_line
from asrnorm.core.registry import Registry
from asrnorm.models import Classifier
from asrnorm.training import LoadedRun

FORMATS: Registry[Callable[[], "FileFormat"]] = Registry("format")

Network = Callable[[Tensor], Tensor]
"""Images `(n, 3, h, w)` in [0, 1] to logits."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model on its way into a file.

    Attributes:
        run: where it comes from.
        model: in evaluation mode on the CPU, in the precision of the file.
        size: height and width of the images.
        batch: images at a time; `None` is any number.
        opset: version of the ONNX operators; `None` is the exporter's own.
    """

    run: LoadedRun
    model: Classifier
    size: tuple[int, int]
    batch: int | None = None
    opset: int | None = None


class FileFormat(abc.ABC):
    """One kind of file.

    Attributes:
        suffix: that its files end in.
        is_traced: it holds the computation, in float32, and needs nothing of this package; else weights alone.
        has_opset: `Subject.opset` means something to it.
        libraries: of the extra `onnx` that it needs.
    """

    suffix: ClassVar[str]
    is_traced: ClassVar[bool] = True
    has_opset: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()

    def require(self) -> None:
        """Refuse before any work where a library is missing.

        Raises:
            MissingDependencyError: with what to install.
        """
        for name in self.libraries:
            try:
                import_module(name)
            except ImportError:
                raise MissingDependencyError(
                    f"format {self.suffix[1:]!r} needs {name}: pip install 'asrnorm[onnx]'"
                ) from None

    @abc.abstractmethod
    def encode(self, subject: Subject) -> tuple[bytes, dict[str, Any]]:
        """Return the content of the file, and what its card should say beyond the common facts."""

    @abc.abstractmethod
    def open(self, path: Path, subject: Subject) -> Network:
        """Return what the file computes, read back from it."""

    def sidecars(self, subject: Subject) -> dict[str, bytes]:  # noqa: ARG002
        """Return further files by what is added to the file's name."""
        return {}


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
