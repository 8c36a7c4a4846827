"""A `.pt2` file of torch.export."""

import logging
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from asrnorm.audit.form import Form
from asrnorm.audit.subject import ModuleSubject, hashed_tensors
from asrnorm.core.errors import InputError, first_line
from asrnorm.models.weights import is_pickle_refusal

_PICKLED = ("custom_obj", "opaque_obj")  # members of an archive that torch unpickles without looking
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_exported(path: Path, form: Form, device: torch.device) -> ModuleSubject:
    """Return the program in a `.pt2` file; batch and image size are read from it.

    Raises:
        InputError: not such a file, one with pickled objects in it, or one that does not take images.
    """
    program = _open(path)
    names = program.graph_signature.user_inputs
    if len(names) != 1:
        raise InputError(f"{path}: takes {len(names)} inputs; an audit needs one, images (n, 3, h, w)")
    value = next(node for node in program.graph.nodes if node.name == names[0]).meta["val"]
    if not isinstance(value, torch.Tensor) or value.ndim != 4 or not value.is_floating_point():
        raise InputError(f"{path}: its input is no float tensor (n, 3, h, w)")
    if value.device.type != device.type:
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    # Sizes that were left open are symbols, not numbers.
    batch, _, height, width = (size if type(size) is int else None for size in value.shape)
    form = replace(form, batch=batch, size=(height, width) if height and width else None)
    constants = (part for item in sorted(program.constants.items()) for part in hashed_tensors(*item))
    code = b"".join([str(program.graph).encode(), *constants])
    subject = ModuleSubject(
        path.name, program.module(), form, device=device, kind="torch-export", source=code, exported=True
    )
    subject.module.dtype = value.dtype
    return subject


def _open(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = [name for name in archive.namelist() if Path(name).name.startswith(_PICKLED)]
        if pickled:
            raise InputError(f"{path}: holds pickled objects ({pickled[0]}), which could run code; export it without")
        with _weights_only(), _silence():
            return torch.export.load(path)
    except InputError:
        raise
    except Exception as error:  # a damaged archive fails anywhere in torch's reader
        if is_pickle_refusal(error):
            text = "holds more than tensors, or is no file of torch.export; it is not loaded"
            raise InputError(f"{path}: {text}") from error
        line = first_line(error)
        reason = "" if "warnings above" in line else f" ({line})"  # which are silenced
        raise InputError(f"{path}: not a file of torch.export that this torch can read{reason}") from error


@contextmanager
def _weights_only() -> Iterator[None]:
    """Keep torch from falling back to a plain pickle, as its reader does for what it does not know."""
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = before


@contextmanager
def _silence() -> Iterator[None]:
    """Keep torch's warnings and the tracebacks that it logs off the screen: one line of ours says what is wrong."""
    log = logging.getLogger("torch.export")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        log.setLevel(before)
