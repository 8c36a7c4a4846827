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
from asrnorm.exporting.base import INPUT, ExportRequest, FileFormat, Network, dynamic_axes, trace
from asrnorm.models import Classifier
from asrnorm.models.weights import pack_state, read_state
from asrnorm.training.assembly import build_like

OUTPUT = "logits"
CONFIG, CARD = ".yaml", ".json"
MIN_OPSET = 18  # PyTorch's exporter emits it; a conversion to an older one may fail
ONNX_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")  # the last runs the file for the comparison


def _encode_onnx(request: ExportRequest) -> tuple[bytes, dict[str, Any]]:
    for name in ONNX_LIBRARIES:
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


def _open_onnx(path: Path, _request: ExportRequest) -> Network:
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


def _encode_program(request: ExportRequest) -> tuple[bytes, dict[str, Any]]:
    buffer = io.BytesIO()
    torch.export.save(trace(request), buffer)
    return buffer.getvalue(), {}


FORMATS = {
    # With a dynamic batch, for onnxruntime and other runtimes
    "onnx": FileFormat(suffix=".onnx", encode=_encode_onnx, open=_open_onnx, has_opset=True),
    # `torch.export.load(file).module()` is a differentiable module.
    "torch-export": FileFormat(
        suffix=".pt2", encode=_encode_program, open=lambda path, _request: torch.export.load(path).module()
    ),
    # Weights and, beside them, the config; `load_weight_file` builds the model.
    "safetensors": FileFormat(
        suffix=".safetensors",
        encode=lambda request: (pack_state(request.model.state_dict()), {}),
        open=lambda path, request: _build(path, request.run.config, len(request.run.classes)),
        sidecar=dump_config,
        is_traced=False,
    ),
}


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
