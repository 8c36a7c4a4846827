"""The file formats: ONNX, `torch.export`, and safetensors with the config that builds the network."""

import io
import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from asrnorm.core.config import RunConfig, dump_config, load_config
from asrnorm.core.errors import InputError, WrongCallError, first_line, import_extra
from asrnorm.core.reading import read_json
from asrnorm.data import create_suite
from asrnorm.exporting.base import FORMATS, INPUT, ExportRequest, FileFormat, Network, dynamic_axes, trace
from asrnorm.models import Classifier
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import build_like

OUTPUT = "logits"
CONFIG, CARD = ".yaml", ".json"
MIN_OPSET = 18  # PyTorch's exporter emits it; a conversion to an older one may fail


@FORMATS.register("onnx")
class OnnxFile(FileFormat):
    """ONNX with a dynamic batch, for onnxruntime and other runtimes."""

    suffix = ".onnx"
    has_opset = True
    libraries = ("onnx", "onnxscript", "onnxruntime")  # the last runs the file for the comparison

    def encode(self, request: ExportRequest) -> tuple[bytes, dict[str, Any]]:
        """Trace the model and convert the graph to ONNX."""
        for name in self.libraries:
            import_extra(name, "format 'onnx'", name, "onnx")
        newest = import_module("onnx").defs.onnx_opset_version()
        if request.opset is not None and not MIN_OPSET <= request.opset <= newest:
            raise WrongCallError(f"opset {request.opset}: PyTorch and this onnx have {MIN_OPSET} to {newest}")
        converted = _convert(trace(request), request)
        model = converted.model
        written = model.opset_imports.get("", 0)
        if request.opset not in (None, written):
            raise InputError(f"this network cannot be written in opset {request.opset}; opset {written} works")
        for graph in (model.graph, *(function.graph for function in model.functions.values())):
            for node in graph:
                node.metadata_props.clear()  # names of modules, and lines of source with their paths
        buffer = io.BytesIO()
        converted.save(buffer)
        return buffer.getvalue(), {"opset": written}

    def open(self, path: Path, request: ExportRequest) -> Network:  # noqa: ARG002
        """Return the network as onnxruntime runs it."""
        session = import_module("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])

        def run(images: Tensor) -> Tensor:
            (logits,) = session.run([OUTPUT], {INPUT: images.numpy()})
            return torch.from_numpy(logits)

        return run


def _convert(program: ExportedProgram, request: ExportRequest) -> Any:
    """Return PyTorch's ONNX program, without the log lines and warnings of the exporter."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own deprecations
            return torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                opset_version=request.opset,
                dynamic_shapes=dynamic_axes(request),  # the program has the axis, this is its name
            )
    except (RuntimeError, ValueError) as error:
        raise InputError(f"PyTorch's exporter failed: {first_line(error)}") from error
    finally:
        logging.disable(level)


@FORMATS.register("torch-export")
class ProgramFile(FileFormat):
    """A `.pt2` file; `torch.export.load(file).module()` is a differentiable module."""

    suffix = ".pt2"

    def encode(self, request: ExportRequest) -> tuple[bytes, dict[str, Any]]:
        """Trace the model and serialize the graph."""
        buffer = io.BytesIO()
        torch.export.save(trace(request), buffer)
        return buffer.getvalue(), {}

    def open(self, path: Path, request: ExportRequest) -> Network:  # noqa: ARG002
        """Return the program of the file."""
        return torch.export.load(path).module()


@FORMATS.register("safetensors")
class WeightFile(FileFormat):
    """Weights in a `.safetensors` file and the config in `<file>.yaml`; `load_weight_file` builds the model."""

    suffix = ".safetensors"
    is_traced = False

    def encode(self, request: ExportRequest) -> tuple[bytes, dict[str, Any]]:
        """Return the state dict in safetensors format."""
        return pack_state(request.model.state_dict()), {}

    def open(self, path: Path, request: ExportRequest) -> Network:
        """Build the network from the config and load the weights of the file."""
        return _build(path, request.run.config, len(request.run.classes))

    def sidecars(self, request: ExportRequest) -> dict[str, bytes]:
        """Return the config."""
        return {CONFIG: dump_config(request.run.config).encode()}


def load_weight_file(path: str | Path) -> Classifier:
    """Return the model of an exported `.safetensors` file beside its `.yaml` and `.json`, in eval mode on the CPU."""
    path = Path(path)
    config = load_config(path.with_name(path.name + CONFIG))
    card = path.with_name(path.name + CARD)
    try:
        num_classes = len(read_json(card)["classes"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{card}: missing or damaged; export the run again") from error
    return _build(path, config, num_classes)


def _build(path: Path, config: RunConfig, num_classes: int) -> Classifier:
    state: dict[str, Tensor] = read_state(path)
    suite = create_suite(config.suite.name, **config.suite.args)
    try:
        return build_like(config, suite, num_classes, torch.device("cpu"), state).eval()
    except RuntimeError as error:  # load_state_dict lists every key
        raise InputError(f"{path}: not the weights of {path.name}{CONFIG}") from error
