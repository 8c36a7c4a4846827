"""What is exported, and what a file format must be able to do with it."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from asrnorm.errors import MissingDependencyError
from asrnorm.models import Classifier
from asrnorm.registry import Registry
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
