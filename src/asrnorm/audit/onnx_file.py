"""ONNX files under audit, run by onnxruntime."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrnorm.audit.model import NO_GRADIENTS, AuditedModel, InputSpec
from asrnorm.core.errors import InputError, first_line, import_extra

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class AuditedOnnx(AuditedModel):
    """An ONNX file with one image input; batch size, image size and layout are read from it.

    It runs on the GPU if `device` is one and onnxruntime can use it.
    """

    def __init__(self, path: Path, input_spec: InputSpec, device: torch.device) -> None:
        self._session = _open(path, device)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _DTYPES or len(inputs[0].shape) != 4:
            found = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise InputError(f"{path}: takes {found}; an audit needs one float input (n, 3, h, w) or (n, h, w, 3)")
        self._input, shape = inputs[0].name, inputs[0].shape
        self._dtype = _DTYPES[inputs[0].type]
        self._channels_last = shape[1] != 3 and shape[3] == 3
        height, width = shape[1:3] if self._channels_last else shape[2:]
        # Dynamic sizes are names or negative.
        batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
        size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
        self._output = _choose_output(path, self._session.get_outputs())
        super().__init__(path.name, "ONNX", replace(input_spec, batch=batch, size=size), _fingerprint(path))
        self.no_gradients = NO_GRADIENTS

    def outputs(self, images: Tensor) -> Tensor:
        """Return the file's class scores."""
        outputs = []
        for part in self.input_spec.split(self.input_spec.prepare(images)):
            values = (part.permute(0, 2, 3, 1) if self._channels_last else part).contiguous().numpy()
            (scores,) = self._session.run([self._output], {self._input: values.astype(self._dtype)})
            outputs.append(torch.from_numpy(scores))
        return torch.cat(outputs)[: len(images)]


def _choose_output(path: Path, outputs: Sequence[Any]) -> str:
    """Return the output called logits, or the only one with the shape of class scores."""
    logits = [one.name for one in outputs if one.name.lower() == "logits"]
    scores = [one.name for one in outputs if one.type in _DTYPES and len(one.shape) == 2]
    names = logits or scores or [one.name for one in outputs[:1]]  # `probe` reports another shape
    if len(names) != 1:
        found = ", ".join(f"{one.name} {one.shape}" for one in outputs)
        raise InputError(
            f"{path}: has no single output of class scores ({found or 'none'}); call the one that is 'logits'"
        )
    return str(names[0])


def _fingerprint(path: Path) -> str:
    """Return a hash of the file and of files beside it that it names, such as weights in `<file>.data`."""
    content = path.read_bytes()
    digest = hashlib.sha256(content)
    for other in sorted(path.parent.iterdir()):
        if other != path and os.fsencode(other.name) in content and other.is_file():
            with other.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _open(path: Path, device: torch.device) -> Any:
    runtime = import_extra("onnxruntime", "an ONNX file", "onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    options.intra_op_num_threads = torch.get_num_threads()
    wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
    providers = [name for name in wanted if name in runtime.get_available_providers()]
    try:
        session = runtime.InferenceSession(
            str(path),
            options,
            providers=[*providers, "CPUExecutionProvider"],
            enable_fallback=len(providers),  # to the CPU; it would print the error of a damaged file, and try again
        )
        for part in (*session.get_inputs(), *session.get_outputs()):
            str(part)  # decodes the names
        return session
    except Exception as error:  # onnxruntime has one class per kind of failure
        raise InputError(f"{path}: not an ONNX file that onnxruntime can run ({first_line(error)})") from error
