"""An ONNX file, run by onnxruntime."""

import hashlib
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from asrnorm.audit.form import Form
from asrnorm.audit.subject import Subject
from asrnorm.errors import InputError, MissingDependencyError, first_line

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxSubject(Subject):
    """A file of ONNX with one image input; batch size, image size and layout are read from it.

    Args:
        path: of the file.
        form: mean and deviation; what the file fixes is added.
        device: `cuda` is used where onnxruntime can.

    Raises:
        InputError: not such a file, or not one that takes images.
        MissingDependencyError: onnxruntime is not installed.
    """

    def __init__(self, path: Path, form: Form, device: torch.device) -> None:
        self._session = _open(path, device)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _DTYPES or len(inputs[0].shape) != 4:
            found = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise InputError(f"{path}: takes {found}; an audit needs one float input (n, 3, h, w) or (n, h, w, 3)")
        self._input, shape = inputs[0].name, inputs[0].shape
        self._dtype = _DTYPES[inputs[0].type]
        self._channels_last = shape[1] != 3 and shape[3] == 3
        height, width = shape[1:3] if self._channels_last else shape[2:]
        # Sizes that were left open are names, not numbers.
        batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
        size = (height, width) if isinstance(height, int) and isinstance(width, int) else None
        fingerprint = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        super().__init__(path.name, "ONNX", replace(form, batch=batch, size=size), fingerprint)
        self.no_gradients = "the file has no gradients"

    def answer(self, images: Tensor) -> Tensor:
        """Return the first output of the file."""
        answers = []
        for part in self.form.split(self.form.prepare(images)):
            values = (part.permute(0, 2, 3, 1) if self._channels_last else part).contiguous().numpy()
            answers.append(torch.from_numpy(self._session.run(None, {self._input: values.astype(self._dtype)})[0]))
        return torch.cat(answers)[: len(images)]


def _open(path: Path, device: torch.device) -> Any:
    try:
        runtime = import_module("onnxruntime")
    except ImportError:
        raise MissingDependencyError("ONNX files need onnxruntime: pip install 'asrnorm[onnx]'") from None
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    options.intra_op_num_threads = torch.get_num_threads()
    wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
    providers = [name for name in wanted if name in runtime.get_available_providers()]
    try:
        return runtime.InferenceSession(str(path), options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for each kind of failure
        raise InputError(f"{path}: not an ONNX file that onnxruntime can run ({first_line(error)})") from error
