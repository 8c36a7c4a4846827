"""Whether a file computes what the model does.

The card of an exported file, `<file>.json`: what to feed it, what comes out, and where it comes from.

A finished run to a file that was read back and compared before it got its name.
"""

import copy
import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import asrnorm
from asrnorm.core.config import content_hash
from asrnorm.core.errors import InputError, StorageError, WrongCallError
from asrnorm.core.files import describe_failure, remove_leftovers, replacing, sync_file, write_whole
from asrnorm.exporting.base import FORMATS, INPUT, FileFormat, Network, Subject, reference_path
from asrnorm.exporting.formats import CARD, OUTPUT
from asrnorm.training import LoadedRun

# Of the largest logit. Another order of additions moves float32 logits by some 1e-7 a layer.
TOLERANCE = 1e-5
# A deep network enlarges rounding errors: the file may be this many times as far off as the model itself is.
_OWN_ERRORS = 4.0
_BATCHES = (1, 3, 8)  # that an open batch is tried with; tracing had two


@dataclass(frozen=True)
class Verdict:
    """How a file was tried.

    Attributes:
        relative_error: the largest difference of a logit, over the largest logit.
        tolerance: what was allowed.
        batches: numbers of images it was tried with.
    """

    relative_error: float
    tolerance: float
    batches: tuple[int, ...]


def verify(network: Network, subject: Subject, name: str) -> Verdict:
    """Compare a file with the model on random images.

    Args:
        network: what the file computes.
        subject: the model, and the shape of its images.
        name: of the file, for the message.

    Raises:
        InputError: they differ by more than rounding explains, or the model's own logits are not finite.
    """
    batches = _BATCHES if subject.batch is None else (subject.batch,)
    dtype = next(subject.model.parameters()).dtype
    generator = torch.Generator().manual_seed(0)
    exact_model = copy.deepcopy(subject.model).double()
    errors, roundings = [], []
    with reference_path(), torch.no_grad():
        for count in batches:
            images = torch.rand((count, 3, *subject.size), generator=generator).to(dtype)
            expected = subject.model(images)
            if not expected.isfinite().all():
                raise InputError(f"{name}: the model itself computes NaN or infinity; its weights may be damaged")
            roundings.append(relative_error(expected, exact_model(images.double())))
            errors.append(relative_error(network(images), expected))
    tolerance = max(TOLERANCE, _OWN_ERRORS * max(roundings))
    worst = next((error for error in errors if math.isnan(error)), max(errors))  # max() may pass NaN over
    if not worst <= tolerance:
        raise InputError(f"{name}: its logits are off by {worst:.1e} of the largest, {tolerance:.1e} would be rounding")
    return Verdict(worst, tolerance, batches)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest expected value.

    Example:
        >>> relative_error(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 4.0]))
        0.25
    """
    if found.shape != expected.shape:
        return float("inf")
    scale = expected.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((found.double() - expected.double()).abs().max() / scale.double())


def count_parameters(model: nn.Module) -> int:
    """Return the number of weights.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(parameter.numel() for parameter in model.parameters())


SCHEMA = 1
# Norms that compute with the statistics of the batch at hand when they are used, too.
_BATCH_NORMS = frozenset({"bn_test"})


def describe_file(subject: Subject, file_format: str, name: str, content: bytes, verdict: Verdict) -> dict[str, Any]:
    """Return the card of a file.

    Args:
        subject: what it holds.
        file_format: its name in the registry.
        name: of the file.
        content: of the file, to be hashed.
        verdict: how it was tried.
    """
    run, batch = subject.run, subject.batch or "batch"
    dtype = str(next(subject.model.parameters()).dtype).removeprefix("torch.")
    return {
        "schema": SCHEMA,
        "format": file_format,
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "classes": list(run.classes),
        "input": {
            "name": INPUT,
            "shape": [batch, 3, *subject.size],
            "layout": "NCHW",
            "dtype": dtype,
            "color": "RGB",
            "range": [0.0, 1.0],
            "normalization": "inside",
            "resize": "bilinear",
        },
        "output": {"name": OUTPUT, "shape": [batch, len(run.classes)], "dtype": dtype, "kind": "logits"},
        "looks_at_other_images": run.config.norm.name in _BATCH_NORMS,
        "num_parameters": count_parameters(subject.model),
        "run": {
            "recipe": run.config.recipe,
            "scale": run.config.scale,
            "seed": run.config.seed,
            "config_hash": content_hash(run.config),
        },
        "verified": {
            "relative_error": verdict.relative_error,
            "tolerance": verdict.tolerance,
            "batches": list(verdict.batches),
        },
        "made_by": {"asrnorm": asrnorm.__version__, "torch": torch.__version__},
    }


@dataclass(frozen=True)
class Export:
    """A file that was written.

    Attributes:
        path: of the file.
        sidecars: the files beside it, its card first.
        verdict: how it was compared with the model.
    """

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
    """Write a finished run to a file, read it back, compare it with the model, and only then give it its name.

    Args:
        run: `asrnorm.training.load_run(folder, device="cpu")`.
        file_format: `onnx`, `torch-export` or `safetensors`.
        out: the file; an earlier one of that name is replaced.
        size: height and width of its images; those the run is evaluated at where `None`.
        batch: images at a time; any number where `None`.
        opset: version of the ONNX operators; PyTorch's choice where `None`.

    Raises:
        UnknownNameError: no such format.
        WrongCallError: options that do not go together.
        MissingDependencyError: the libraries of the format are not installed.
        InputError: the network does not take such images, or the file does not compute what the model does.
        StorageError: the file cannot be written.
    """
    chosen, path = FORMATS[file_format](), Path(out)
    _refuse(chosen, file_format, path, size=size, batch=batch, opset=opset)
    chosen.require()
    model = run.model if run.device.type == "cpu" else copy.deepcopy(run.model).cpu()
    if chosen.is_traced:
        model = model if run.config.precision != "float64" else copy.deepcopy(model).to(torch.float32)
    subject = Subject(run=run, model=model, size=run.input_size if size is None else size, batch=batch, opset=opset)
    content, facts = chosen.encode(subject)
    try:
        remove_leftovers(path)
        with replacing(path) as temporary:
            temporary.write_bytes(content)
            sync_file(temporary)  # a full disk is found before the files beside it change
            verdict = verify(chosen.open(temporary, subject), subject, path.name)
            card = {**describe_file(subject, file_format, path.name, content, verdict), **facts}
            sidecars = {CARD: (json.dumps(card, indent=2) + "\n").encode(), **chosen.sidecars(subject)}
            for ending, text in sidecars.items():
                write_whole(path.with_name(path.name + ending), text)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{describe_failure(error, path)}; choose another --out") from None
    return Export(path, tuple(path.with_name(path.name + ending) for ending in sidecars), verdict)


def _refuse(
    chosen: FileFormat,
    file_format: str,
    path: Path,
    *,
    size: tuple[int, int] | None,
    batch: int | None,
    opset: int | None,
) -> None:
    if path.suffix != chosen.suffix:
        raise WrongCallError(f"{path}: a file of format {file_format!r} ends in {chosen.suffix}")
    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file")
    if opset is not None and not chosen.has_opset:
        raise WrongCallError(f"opset is for ONNX; format {file_format!r} has none")
    if not chosen.is_traced and (size is not None or batch is not None):
        raise WrongCallError(f"format {file_format!r} holds weights alone, which fix neither size nor batch")
    if size is not None and min(size) < 1:
        raise WrongCallError(f"size {size[0]}x{size[1]}: both sides must be positive")
    if batch is not None and batch < 1:
        raise WrongCallError(f"batch {batch}: must be positive, or dynamic")
