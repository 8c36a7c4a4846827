"""Load the model that a word on the command line names."""

import hashlib
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.audit.model import AuditedModel, AuditedModule, InputSpec
from asrnorm.core.errors import InputError, WrongCallError, first_line, import_extra
from asrnorm.core.reading import read_json
from asrnorm.data.suites.base import IMAGENET_MEAN, IMAGENET_STD
from asrnorm.models.weights import read_state, unwrap_state

_FORMS = "a run folder, torchvision:NAME, timm:NAME, package.module:function, file.py:function, a .pt2 or an .onnx file"
_WEIGHT_FILES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")
_LIBRARIES = ("torchvision", "timm")


def load_model(
    word: str,
    *,
    weights: str | None = None,
    input_spec: InputSpec | None = None,
    device: str = "auto",
    seed: int = 0,
    trust: bool = False,
) -> AuditedModel:
    """Return the model that a word names.

    A Python function is code: load those you trust. Weights are never unpickled beyond plain tensors, and a `.pt2` file
    that could run code is not loaded.

    Args:
        word: a run folder, `torchvision:NAME`, `timm:NAME`, `package.module:function` or `path/file.py:function`
            (called without arguments, returns an `nn.Module`), a `.pt2` file or an `.onnx` file.
        weights: for a name or function: a file of weights, or the library's own name of some.
        input_spec: mean and deviation of the input, if they differ from the default.
        device: `auto` is a GPU if there is one.
        seed: of torch before a function is called, so that a network without weights is the same every time.
        trust: load a `.pt2` file whatever it holds; it can run code.
    """
    from asrnorm.training.assembly import choose_device

    chosen, input_spec = choose_device(device), input_spec or InputSpec()
    path = Path(word)
    suffix = path.suffix.lower()
    if weights is not None and (path.is_dir() or suffix in (".pt2", ".onnx")):
        raise InputError(f"{word} has weights of its own; leave out --weights")
    if path.is_dir():
        return _load_run(path, chosen)
    if suffix in (".pt2", ".onnx"):
        return _load_file(path, input_spec, chosen, trust)
    if suffix in _WEIGHT_FILES:
        raise WrongCallError(
            f"{path}: weights alone are no network; give torchvision:NAME or file.py:function --weights FILE"
        )
    source, _, name = word.rpartition(":")
    if not source or not name:
        raise WrongCallError(f"{word}: no such model; give {_FORMS}")
    if source in _LIBRARIES:
        network, input_spec = _build_from_library(source, name, weights, input_spec)
        return AuditedModule(word, network, input_spec, device=chosen, kind=source)
    torch.manual_seed(seed)
    network, code = _call_function(word, source, name)
    if weights is not None:
        load_strictly(network, _read_weights(weights), weights)
    shown = f"{Path(source).name}:{name}" if source.endswith(".py") else word
    return AuditedModule(shown, network, input_spec, device=chosen, kind="python", source=code)


def normalizes_itself(word: str) -> bool:
    """Return whether a model contains its normalization: a run, or a file whose card says so."""
    return Path(word).is_dir() or _is_normalized(_read_card(Path(word)))


def _load_run(folder: Path, device: torch.device) -> AuditedModel:
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder}: not the folder of a run, it has no config.yaml; a model is {_FORMS}")
    from asrnorm.training import load_run

    run = load_run(folder, str(device))
    code = (folder / "config.yaml").read_bytes()
    input_spec = InputSpec(size=run.input_size)  # the run's model normalizes
    model = AuditedModule(folder.name, run.model, input_spec, device=device, kind="run", source=code)
    model.native_size, model.class_names = run.suite.image_size, run.classes
    return model


def _load_file(path: Path, input_spec: InputSpec, device: torch.device, trust: bool) -> AuditedModel:
    if not path.is_file():
        raise WrongCallError(f"{path}: no such file")
    card = _read_card(path)
    input_spec = InputSpec() if _is_normalized(card) else input_spec
    model: AuditedModel
    if path.suffix.lower() == ".pt2":
        from asrnorm.audit.pt2 import load_pt2

        model = load_pt2(path, input_spec, device, trust=trust)
    else:
        from asrnorm.audit.onnx_file import AuditedOnnx

        model = AuditedOnnx(path, input_spec, device)
    classes = card.get("classes")
    if isinstance(classes, list) and all(isinstance(name, str) for name in classes):
        model.class_names = tuple(classes)
    return model


def _read_card(path: Path) -> dict[str, Any]:
    """Return the card that `asrnorm export` writes beside a file, or nothing if it is missing or of another file."""
    try:
        card = read_json(path.with_name(f"{path.name}.json"))
        return dict(card) if card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_normalized(card: dict[str, Any]) -> bool:
    spec = card.get("input")
    return isinstance(spec, dict) and spec.get("normalization") == "inside"


def _call_function(word: str, source: str, name: str) -> tuple[nn.Module, bytes]:
    """Return what a function returns, and its name followed by the code of its file."""
    try:
        if source.endswith(".py"):
            module = _import_file(Path(source))
        else:
            _add_to_path(Path.cwd())  # `python -m` looks there, the installed command does not
            module = import_module(source)
    except InputError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"{word}: {source} cannot be imported ({_describe(error)})") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{word}: {source} has no function {name!r}")
    try:
        network = function()
    except Exception as error:
        raise InputError(f"{word}: {name}() raised {_describe(error)}; it is called without arguments") from error
    if not isinstance(network, nn.Module):
        raise InputError(f"{word}: {name}() returned {type(network).__name__}, not an nn.Module")
    file = getattr(module, "__file__", None)
    return network, name.encode() + (Path(file).read_bytes() if file else b"")


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WrongCallError(f"{path}: no such file")
    _add_to_path(path.resolve().parent)  # the file may import its neighbors
    name = f"_audited_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}" if str(error).strip() else type(error).__name__


def _build_from_library(
    library: str, name: str, weights: str | None, input_spec: InputSpec
) -> tuple[nn.Module, InputSpec]:
    """Return a network of torchvision or timm, and its input with ImageNet's mean and deviation unless given."""
    module = "torchvision.models" if library == "torchvision" else library
    models = import_extra(module, f"{library}:{name}", library, "vision")
    if weights is None:
        own = "DEFAULT" if library == "torchvision" else "pretrained"
        raise InputError(f"{library}:{name} has no weights; give --weights FILE, or --weights {own} for the library's")
    try:
        network = _build(library, models, name, weights)
    except InputError:
        raise
    except Exception as error:  # unknown name, unknown weights, failed download: each raises its own class
        raise InputError(f"{library}:{name} with weights {weights!r} cannot be built ({first_line(error)})") from error
    if input_spec.mean is not None:
        return network, input_spec
    config = getattr(network, "pretrained_cfg", None) or {}
    mean, std = config.get("mean", IMAGENET_MEAN), config.get("std", IMAGENET_STD)
    return network, replace(input_spec, mean=tuple(mean), std=tuple(std))


def _build(library: str, models: Any, name: str, weights: str) -> Any:
    vision = library == "torchvision"
    if not Path(weights).is_file():
        if vision:
            return models.get_model(name, weights=weights)
        return models.create_model(name if weights == "pretrained" else f"{name}.{weights}", pretrained=True)
    make = partial(models.get_model, weights=None) if vision else models.create_model
    order = make(name).state_dict()  # the order of layers: some file formats sort tensors by name
    state = unwrap_state(_read_weights(weights), order)
    network = make(name, num_classes=count_classes(state, order, weights))
    load_strictly(network, state, weights)
    return network


def _read_weights(path: str) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about a strange pickle before `read_state` refuses it
        return read_state(Path(path))


def load_strictly(network: nn.Module, state: dict[str, Tensor], path: str | Path) -> None:
    """Load a state dict, or raise `InputError` if a tensor is missing, left over, or of another shape."""
    own = network.state_dict()
    state = unwrap_state(state, own)
    differences = [
        *(f"lacks {key}" for key in own if key not in state),
        *(f"has {key}, which the network lacks" for key in state if key not in own),
        *(f"has {key} of another shape" for key in state if key in own and state[key].shape != own[key].shape),
    ]
    try:
        network.load_state_dict(state)  # layers may accept missing tensors, such as the bounds of a clamped layer
    except Exception as error:  # layers with their own way to load raise anything
        if not differences and not isinstance(error, RuntimeError):
            raise
        raise InputError(
            f"{path}: not the weights of this {type(network).__name__}: it "
            + (differences[0] if differences else f"does not load ({first_line(error)})")
            + (f" ({len(differences)} tensors differ)" if len(differences) > 1 else "")
        ) from None


def count_classes(state: Mapping[str, Tensor], order: Iterable[str], path: str) -> int:
    """Return the number of classes of a state dict: the length of its last bias."""
    biases = [state[key] for key in order if key.endswith("bias") and key in state and state[key].ndim == 1]
    if not biases:
        raise InputError(f"{path}: has no bias to tell the number of classes by; give file.py:function instead")
    return len(biases[-1])
