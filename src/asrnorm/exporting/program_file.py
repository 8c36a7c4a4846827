"""`torch.export`: a file that PyTorch runs without the code of the model."""

import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asrnorm.exporting.base import FORMATS, FileFormat, Network, Subject
from asrnorm.exporting.trace import trace


@FORMATS.register("torch-export")
class ProgramFile(FileFormat):
    """A `.pt2` file; `torch.export.load(file).module()` runs it, compiles it, and has its gradients."""

    suffix = ".pt2"

    def encode(self, subject: Subject) -> tuple[bytes, dict[str, Any]]:
        """Trace and serialize."""
        buffer = io.BytesIO()
        torch.export.save(trace(subject), buffer)
        return buffer.getvalue(), {}

    def open(self, path: Path, subject: Subject) -> Network:  # noqa: ARG002
        """Return the program of the file."""
        program = torch.export.load(path).module()

        def run(images: Tensor) -> Tensor:
            logits: Tensor = program(images)
            return logits

        return run
