"""Export of a finished run: the file is compared with the model before it gets its name, and described in a card."""

import copy
import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import asrnorm
from asrnorm import ops
from asrnorm.core.config import content_hash
from asrnorm.core.errors import InputError, StorageError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.core.files import describe_failure, replacing, sync_file, write_whole
from asrnorm.exporting.base import INPUT, ExportRequest, FileFormat, Network
from asrnorm.exporting.formats import CARD, CONFIG, FORMATS, OUTPUT
from asrnorm.training import LoadedRun

SCHEMA = 1
# Relative to the largest logit. Another order of additions changes float32 logits by about 1e-7 per layer.
TOLERANCE = 1e-5
# Deep networks amplify rounding errors: the file may differ by this multiple of the model's own rounding error.
_MODEL_ERRORS = 4.0
_BATCHES = (1, 3, 8)  # compared for a dynamic batch; tracing uses two


@dataclass(frozen=True)
class Verdict:
    """The difference between a file and its model on random images, in batches of some sizes."""

    relative_error: float  # the largest difference of a logit, over the largest logit
    tolerance: float  # the largest error allowed
    batches: tuple[int, ...]


@dataclass(frozen=True)
class Export:
    """An exported file, the files beside it (the card first), and how far the file is from the model."""

    path: Path
    sidecars: tuple[Path, ...]
    verdict: Verdict


def export_run(
    run: LoadedRun,
    file_format: str,
    out: str | Path,
    *,
    size: tuple[int, int] | None = None,
    batch: int | None = None,
    opset: int | None = None,
) -> Export:
    """Write a finished run to a temporary file, compare it with the model, and rename it if they agree.

    Args:
        run: `asrnorm.training.load_run(folder, device="cpu")`.
        file_format: `onnx`, `torch-export` or `safetensors`.
        out: the file; an existing one is replaced.
        size: height and width of its images; `None` is the size the run is evaluated at.
        batch: images at a time; `None` is any number.
        opset: version of the ONNX operators; `None` is PyTorch's default.
    """
    if file_format not in FORMATS:
        raise UnknownNameError(describe_unknown("format", file_format, FORMATS))
    chosen, path = FORMATS[file_format], Path(out)
    _check_options(chosen, file_format, path, size, batch, opset)

    model = run.model if run.device.type == "cpu" else copy.deepcopy(run.model).cpu()
    if chosen.is_traced and run.config.precision == "float64":
        model = copy.deepcopy(model).to(torch.float32)
    request = ExportRequest(run=run, model=model, size=size or run.input_size, batch=batch, opset=opset)
    content, entries = chosen.encode(request)
    try:
        with replacing(path, follow_links=False) as temporary:
            temporary.write_bytes(content)
            sync_file(temporary)  # a full disk raises before the sidecars change
            verdict = verify(chosen.open(temporary, request), request, path.name)
            card = {**describe_file(request, file_format, path.name, content, verdict), **entries}
            endings = {CARD: json.dumps(card, indent=2) + "\n"}
            if chosen.sidecar is not None:
                endings[CONFIG] = chosen.sidecar(run.config)
            sidecars = {path.with_name(path.name + ending): text for ending, text in endings.items()}
            for sidecar, text in sidecars.items():
                write_whole(sidecar, text, follow_links=False)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{describe_failure(error, path)}; choose another --out") from None
    return Export(path, tuple(sidecars), verdict)


def _check_options(
    chosen: FileFormat, file_format: str, path: Path, size: tuple[int, int] | None, batch: int | None, opset: int | None
) -> None:
    if path.suffix != chosen.suffix:
        raise WrongCallError(f"{path}: a file of format {file_format!r} ends in {chosen.suffix}")
    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file")
    if opset is not None and not chosen.has_opset:
        raise WrongCallError(f"opset is for ONNX; format {file_format!r} has none")
    if not chosen.is_traced and (size is not None or batch is not None):
        raise WrongCallError(f"format {file_format!r} holds weights only: leave out size and batch")
    if size is not None and min(size) < 1:
        raise WrongCallError(f"size {size[0]}x{size[1]}: both sides must be positive")
    if batch is not None and batch < 1:
        raise WrongCallError(f"batch {batch}: must be positive, or dynamic")


def verify(network: Network, request: ExportRequest, name: str) -> Verdict:
    """Compare the network of the file `name` with the model on random images; raise `InputError` if they differ."""
    batches = _BATCHES if request.batch is None else (request.batch,)
    dtype = next(request.model.parameters()).dtype
    generator = torch.Generator().manual_seed(0)
    exact_model = copy.deepcopy(request.model).double()
    errors, model_errors = [], []
    with ops.use_backend("reference"), torch.no_grad():
        for count in batches:
            images = torch.rand((count, 3, *request.size), generator=generator).to(dtype)
            expected = request.model(images)
            if not expected.isfinite().all():
                raise InputError(f"{name}: the model itself computes NaN or infinity; its weights may be damaged")
            model_errors.append(relative_error(expected, exact_model(images.double())))
            errors.append(relative_error(network(images), expected))
    tolerance = max(TOLERANCE, _MODEL_ERRORS * max(model_errors))
    worst = math.nan if any(map(math.isnan, errors)) else max(errors)  # max() ignores NaN unless it comes first
    if not worst <= tolerance:
        raise InputError(f"{name}: its logits differ by {worst:.1e} of the largest; rounding explains {tolerance:.1e}")
    return Verdict(worst, tolerance, batches)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest expected value."""
    if found.shape != expected.shape:
        return math.inf
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((found.double() - expected.double()).abs().max() / scale.double())


def describe_file(
    request: ExportRequest, file_format: str, name: str, content: bytes, verdict: Verdict
) -> dict[str, Any]:
    """Return the card of a file, `<file>.json`: its input, its output, and the run it comes from."""
    run, batch = request.run, request.batch or "batch"
    dtype = str(next(request.model.parameters()).dtype).removeprefix("torch.")
    return {
        "schema": SCHEMA,
        "format": file_format,
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "classes": list(run.classes),
        "input": {
            "name": INPUT,
            "shape": [batch, 3, *request.size],
            "layout": "NCHW",
            "dtype": dtype,
            "color": "RGB",
            "range": [0.0, 1.0],
            "normalization": "inside",
            "resize": "bilinear",
        },
        "output": {"name": OUTPUT, "shape": [batch, len(run.classes)], "dtype": dtype, "kind": "logits"},
        "looks_at_other_images": run.config.norm.name == "bn_test",
        "num_parameters": sum(parameter.numel() for parameter in request.model.parameters()),
        "run": {
            "recipe": run.config.recipe,
            "scale": run.config.scale,
            "seed": run.config.seed,
            "config_hash": content_hash(run.config),
        },
        "verified": asdict(verdict),
        "made_by": {"asrnorm": asrnorm.__version__, "torch": torch.__version__},
    }
