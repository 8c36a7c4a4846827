"""ONNX: one file that any ONNX runtime opens."""

import io
import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from asrnorm.errors import InputError, WrongCallError, first_line
from asrnorm.exporting.base import FORMATS, FileFormat, Network, Subject
from asrnorm.exporting.trace import INPUT, open_axes, trace

OUTPUT = "logits"
OLDEST_OPSET = 18  # what PyTorch's exporter is written in; older ones are conversions that may fail


@FORMATS.register("onnx")
class OnnxFile(FileFormat):
    """ONNX, with open batch; runs in onnxruntime and the like."""

    suffix = ".onnx"
    has_opset = True
    libraries = ("onnx", "onnxscript", "onnxruntime")  # the last to check the file

    def encode(self, subject: Subject) -> tuple[bytes, dict[str, Any]]:
        """Trace and translate."""
        newest = import_module("onnx").defs.onnx_opset_version()
        if subject.opset is not None and not OLDEST_OPSET <= subject.opset <= newest:
            raise WrongCallError(f"opset {subject.opset}: PyTorch and this onnx have {OLDEST_OPSET} to {newest}")
        translated = _translate(trace(subject), subject)
        model = translated.model
        written = model.opset_imports.get("", 0)
        if subject.opset not in (None, written):
            raise InputError(f"this network cannot be written in opset {subject.opset}; {written} can be had")
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            for node in graph:
                node.metadata_props.clear()  # names of modules, and lines of source with paths of this machine
        buffer = io.BytesIO()
        translated.save(buffer)
        return buffer.getvalue(), {"opset": written}

    def open(self, path: Path, subject: Subject) -> Network:  # noqa: ARG002
        """Return what onnxruntime makes of the file."""
        session = import_module("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])

        def run(images: Tensor) -> Tensor:
            (logits,) = session.run([OUTPUT], {INPUT: images.numpy()})
            return torch.from_numpy(logits)

        return run


def _translate(program: ExportedProgram, subject: Subject) -> Any:
    """Return PyTorch's ONNX program; it says much while it works, and none of it concerns the user."""
    talkers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [talker.level for talker in talkers]
    for talker in talkers:
        talker.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
            return torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                opset_version=subject.opset,
                dynamic_shapes=open_axes(subject),  # known to the program, but not by name
            )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"PyTorch's exporter failed: {first_line(error)}") from error
    finally:
        for talker, level in zip(talkers, levels, strict=True):
            talker.setLevel(level)
