"""A finished run to a file that was read back and compared before it got its name."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from asrnorm.errors import InputError, StorageError, WrongCallError
from asrnorm.exporting.base import FORMATS, FileFormat, Subject
from asrnorm.exporting.card import describe_file
from asrnorm.exporting.verify import Verdict, verify
from asrnorm.exporting.weight_file import CARD
from asrnorm.storage import describe_failure, remove_leftovers, replacing, sync_file, write_whole
from asrnorm.training import LoadedRun


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
