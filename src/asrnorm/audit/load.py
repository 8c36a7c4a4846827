"""From what stands on the command line to a model that can be audited."""

import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from asrnorm.audit.form import Form
from asrnorm.audit.library import LIBRARIES, build_from_library, load_strictly, read_weights
from asrnorm.audit.subject import ModuleSubject, Subject
from asrnorm.core.errors import InputError, WrongCallError, first_line

_FORMS = "a run folder, torchvision:NAME, timm:NAME, package.module:function, file.py:function, a .pt2 or an .onnx file"
_WEIGHTS_ALONE = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def load_subject(
    model: str,
    *,
    weights: str | None = None,
    form: Form | None = None,
    device: str = "auto",
    seed: int = 0,
    trust: bool = False,
) -> Subject:
    """Return the model that a word names.

    A Python function is code: load those you trust. Weights are never unpickled beyond plain tensors, and a `.pt2` file
    that could run code is not loaded.

    Args:
        model: a run folder, `torchvision:NAME`, `timm:NAME`, `package.module:function` or `path/file.py:function`
            (called without arguments, returns an `nn.Module`), a `.pt2` file or an `.onnx` file.
        weights: for a name or function: a file of weights, or the library's own name of some.
        form: mean and deviation of the input where they are not the default.
        device: `auto` is a GPU where there is one.
        seed: of torch before a function is called, so that a network without weights is the same every time.
        trust: load a `.pt2` file whatever it holds; it can run code.

    Raises:
        WrongCallError: none of these, or of a file that is not there.
        InputError: what it names cannot be loaded; one line says why.
        MissingDependencyError: the library it needs is not installed.
    """
    from asrnorm.training.distributed import choose_device

    chosen, form = choose_device(device), form or Form()
    path = Path(model)
    if path.is_dir():
        _refuse_weights(model, weights)
        return _load_run(path, chosen)
    if path.suffix.lower() in (".pt2", ".onnx"):
        _refuse_weights(model, weights)
        if not path.is_file():
            raise WrongCallError(f"{path}: no such file")
        card = _read_card(path)
        subject = _load_file(path, Form() if _has_form(card) else form, chosen, trust)
        subject.class_names = _read_classes(card)
        return subject
    if path.suffix.lower() in _WEIGHTS_ALONE:
        raise WrongCallError(
            f"{path}: weights alone are no network; give torchvision:NAME or file.py:function --weights FILE"
        )
    place, colon, name = model.rpartition(":")
    if not colon or not place or not name:
        raise WrongCallError(f"{model}: no such model; give {_FORMS}")
    if place in LIBRARIES:
        network, form = build_from_library(place, name, weights, form)
        return ModuleSubject(model, network, form, device=chosen, kind=place)
    torch.manual_seed(seed)
    network, source = _call(model, place, name)
    if weights is not None:
        load_strictly(network, read_weights(Path(weights)), weights)
    shown = f"{Path(place).name}:{name}" if place.endswith(".py") else model
    return ModuleSubject(shown, network, form, device=chosen, kind="python", source=source)


def _refuse_weights(model: str, weights: str | None) -> None:
    if weights is not None:
        raise InputError(f"{model} has weights of its own; leave out --weights")


def _load_run(folder: Path, device: torch.device) -> Subject:
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder}: not the folder of a run, it has no config.yaml; a model is {_FORMS}")
    from asrnorm.training import load_run

    loaded = load_run(folder, str(device))
    code = (folder / "config.yaml").read_bytes()
    form = Form(size=loaded.input_size)  # mean and deviation stand in the run's own model
    subject = ModuleSubject(folder.name, loaded.model, form, device=device, kind="run", source=code)
    subject.native_size = loaded.suite.image_size
    subject.class_names = loaded.classes
    return subject


def _load_file(path: Path, form: Form, device: torch.device, trust: bool) -> Subject:
    if path.suffix.lower() == ".pt2":
        from asrnorm.audit.exported import load_exported

        return load_exported(path, form, device, trust=trust)
    from asrnorm.audit.onnx_file import OnnxSubject

    return OnnxSubject(path, form, device)


def normalizes_itself(model: str) -> bool:
    """Tell whether a model has mean and deviation inside: a run, or a file whose card says so."""
    return Path(model).is_dir() or _has_form(_read_card(Path(model)))


def _read_card(path: Path) -> dict[str, Any]:
    """Return the card that `asrnorm export` lays beside a file; empty without one of this file."""
    try:
        card = json.loads(path.with_name(f"{path.name}.json").read_text(encoding="utf-8"))
        return dict(card) if card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _has_form(card: dict[str, Any]) -> bool:
    form = card.get("input")
    return isinstance(form, dict) and form.get("normalization") == "inside"


def _read_classes(card: dict[str, Any]) -> tuple[str, ...] | None:
    classes = card.get("classes")
    known = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    return tuple(classes) if classes is not None and known else None


def _call(model: str, place: str, name: str) -> tuple[nn.Module, bytes]:
    """Return what a function returns, and its name with the code of its file."""
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except InputError:
        raise
    except Exception as error:  # someone else's code: anything can come
        raise InputError(f"{model}: {place} cannot be imported ({_describe(error)})") from error
    function: Callable[[], object] | None = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{model}: {place} has no function {name!r}")
    try:
        network = function()
    except Exception as error:
        raise InputError(f"{model}: {name}() raised {_describe(error)}; it is called without arguments") from error
    if not isinstance(network, nn.Module):
        raise InputError(f"{model}: {name}() returned {type(network).__name__}, not an nn.Module")
    file = getattr(module, "__file__", None)
    return network, name.encode() + (Path(file).read_bytes() if file else b"")


def _import_module(name: str) -> ModuleType:
    _look_in(Path.cwd())  # where the installed command, unlike `python -m`, does not look
    return import_module(name)


def _look_in(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WrongCallError(f"{path}: no such file")
    _look_in(path.resolve().parent)  # for what it imports from beside itself
    name = f"_audited_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


def _describe(error: Exception) -> str:
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"
