"""ONNX: one file that any ONNX runtime opens.

`torch.export`: a file that PyTorch runs without the code of the model.

safetensors: the weights alone, beside the config that builds the network for them.
"""

import io
import json
import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from asrnorm.core.config import RunConfig, dump_config, load_config
from asrnorm.core.errors import InputError, WrongCallError, first_line
from asrnorm.data import create_suite
from asrnorm.exporting.base import FORMATS, INPUT, FileFormat, Network, Subject, open_axes, trace
from asrnorm.models import Classifier
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import build_like

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


CONFIG, CARD = ".yaml", ".json"


@FORMATS.register("safetensors")
class WeightFile(FileFormat):
    """Weights in a `.safetensors` file and the config in `<file>.yaml`; `load_weight_file` makes the model of them."""

    suffix = ".safetensors"
    is_traced = False

    def encode(self, subject: Subject) -> tuple[bytes, dict[str, Any]]:
        """Return the tensors by name."""
        return pack_state(subject.model.state_dict()), {}

    def open(self, path: Path, subject: Subject) -> Network:
        """Build the network anew and give it the weights of the file."""
        return _build(path, subject.run.config, len(subject.run.classes))

    def sidecars(self, subject: Subject) -> dict[str, bytes]:
        """Return the config."""
        return {CONFIG: dump_config(subject.run.config).encode()}


def load_weight_file(path: str | Path) -> Classifier:
    """Return the model of an exported `.safetensors` file, in evaluation mode on the CPU.

    Args:
        path: the file; `<path>.yaml` and `<path>.json` lie beside it.

    Raises:
        InputError: a file is missing or damaged, or they do not belong together.
    """
    path = Path(path)
    config = load_config(path.with_name(path.name + CONFIG))
    card = path.with_name(path.name + CARD)
    try:
        classes = json.loads(card.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{card}: missing or damaged; export the run again") from error
    return _build(path, config, len(classes))


def _build(path: Path, config: RunConfig, num_classes: int) -> Classifier:
    state: dict[str, Tensor] = read_state(path)
    suite = create_suite(config.suite.name, **config.suite.args)
    try:
        return build_like(config, suite, num_classes, torch.device("cpu"), state).eval()
    except RuntimeError as error:  # load_state_dict lists every key
        raise InputError(f"{path}: not the weights of {path.name}{CONFIG}") from error
