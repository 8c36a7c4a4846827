"""`save` and `load`: the weights of a network in one file with what was converted in it."""

import copy
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from asrnorm.conversion import convert
from asrnorm.conversion.specification import (
    ConversionStep,
    compare_conversions,
    describe_conversion,
    unwrap,
    without_wrappers,
    wrapper_of,
)
from asrnorm.conversion.swap import check_unwrapped
from asrnorm.core.errors import AsrnormError, ConversionError, InputError, InputTypeError, first_line, printable
from asrnorm.core.files import write_whole
from asrnorm.models.base import MODELS, NormalizedInput
from asrnorm.models.weights import pack_state, read_metadata, read_state
from asrnorm.norms import NORMS
from asrnorm.norms.asr import LIMITS

_KEY, _VERSION = "asrnorm", 1  # of the metadata
_MAX_CHARACTERS = 1 << 20  # of the metadata; a network with 1,000 converted layers needs some 30,000
_CALL = "_asrnorm_create_model"


class _Saved(NamedTuple):
    path: Path
    state: dict[str, Tensor]
    conversion: list[ConversionStep]
    call: dict[str, Any] | None  # of `create_model`


def remember_call(model: nn.Module, **call: Any) -> None:
    """Record the call of `create_model` that built a model, so that `save` can store it."""
    model.__dict__[_CALL] = call


def save(model: nn.Module, path: str | Path) -> None:
    """Save the weights of a network, and what was converted in it, to one `.safetensors` file for `load`.

    For a network from `create_model` the file also says how to build it. Original layers are not saved. A network that
    is compiled, averaged, or inside DataParallel or DDP is saved under its plain names.

    Args:
        model: any network, converted or not.
        path: of a file that ends in `.safetensors`; it is written whole or not at all.

    Raises:
        InputError: another ending, or a tensor without values.
        InputTypeError: no network, or a state that has more than tensors.
        ConversionError: the network is sharded or scripted.
        StorageError: the file cannot be written; an old one stays.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(convert(nn.Sequential(nn.BatchNorm2d(8)), "asr"), f"{folder}/net.safetensors")
        ...     type(load(f"{folder}/net.safetensors", nn.Sequential(nn.BatchNorm2d(8)))[0]).__name__
        'ASRNorm2d'
    """
    path, inner = _check_path(path), _inside(model)
    conversion = [step._asdict() for step in describe_conversion(inner)]
    text = json.dumps({"version": _VERSION, "conversion": conversion, "model": _describe_call(inner)})
    state = _plain_state(inner)
    for key, value in state.items():
        if not isinstance(value, Tensor):
            raise InputTypeError(f"{key} is {type(value).__name__}, not a tensor; save such a network with torch.save")
        if is_lazy(value) or value.is_meta:
            raise InputError(f"{key} has no values yet; run one batch through the network, or load its weights, first")
    try:
        data = pack_state(state, {_KEY: text})
    except Exception as error:  # sparse tensors and the like; safetensors has its own error class
        raise InputError(f"{path}: the weights cannot be saved as safetensors ({first_line(error)})") from error
    write_whole(path, data)


def load(path: str | Path, model: nn.Module | None = None) -> nn.Module:
    """Return a network with the weights and the conversion of a file that `save` wrote.

    A given network keeps device, dtype, training flag and wrappers; it is changed only if the file fits it. `revert`
    gives its own norm layers back, because the file has no others.

    Args:
        path: the file.
        model: a network of the saved architecture that is not converted, or converted in the same way; `None` builds a
            network of `create_model`, on the CPU and in the dtype of the file.

    Raises:
        InputError: the file is missing, damaged, not written by `save`, or of another network.
        ConversionError: the network is converted in another way, or cannot be converted.
        UnknownNameError: the file names a norm or backbone that is not registered.

    Example:
        >>> import tempfile
        >>> from asrnorm.models import create_model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(create_model("digits_convnet", norm="asr", num_classes=5), f"{folder}/net.safetensors")
        ...     load(f"{folder}/net.safetensors").num_classes
        5
    """
    saved = _read(_check_path(path))
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten: loading draws nothing
        if model is None:
            return _build(saved)
        inner = _inside(model)
        here = describe_conversion(inner)
        if (difference := compare_conversions(here, saved.conversion)) and here:
            raise ConversionError(
                f"{path}: the network is converted in another way than the file: {difference}; asrnorm.revert(net) it, "
                "or give a new one"
            )
        if difference:
            check_unwrapped(model)
            with suppress(TypeError, RuntimeError, NotImplementedError):  # a network that cannot be copied
                _check_fits(_convert_alike(_copy_to_meta(inner), saved), saved)
            # A single layer is replaced; any other network is converted in place.
            converted = _convert_alike(inner, saved)
            model, inner = converted if model is inner else model, converted
        _check_fits(inner, saved)
        _fill(inner, saved.state)
        return model


def _check_path(path: str | Path) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise InputTypeError(f"expected the path of a file, not {type(path).__name__}; save(net, path), load(path)")
    if Path(path).suffix != ".safetensors":
        raise InputError(f"{path}: asrnorm.save and asrnorm.load take a file that ends in .safetensors")
    return Path(path)


def _inside(model: nn.Module) -> nn.Module:
    """Return the network inside wrappers; raise if there is none, or it is scripted or sharded."""
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise InputTypeError(f"expected a torch.nn.Module that is not scripted, not {type(model).__name__}")
    if sharded := next((name for m in model.modules() if "FS" in (name := wrapper_of(m) or "")), None):
        raise ConversionError(f"the model is sharded by {sharded}: gather its state dict into a plain network first")
    return unwrap(model)


def _plain_state(model: nn.Module) -> dict[str, Any]:
    return {without_wrappers(key): value for key, value in model.state_dict(keep_vars=True).items()}


def _fill(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    own = {without_wrappers(key): key for key in model.state_dict()}
    model.load_state_dict({own.get(key, key): value for key, value in state.items()})
    return model


def _describe_call(model: nn.Module) -> dict[str, Any] | None:
    backbone = model.backbone if isinstance(model, NormalizedInput) else model
    call = backbone.__dict__.get(_CALL)
    try:
        return None if call is None else json.loads(json.dumps({**call, "normalize": backbone is not model}))
    except (TypeError, ValueError):  # an option that is not plain data
        return None


def _read(path: Path) -> _Saved:
    state = read_state(path)
    text = read_metadata(path).get(_KEY)
    if text is None:
        raise InputError(
            f"{path}: not written by asrnorm.save; load plain weights by net.load_state_dict, and those of a run by "
            "asrnorm.training.load_run(FOLDER)"
        )
    if len(text) > _MAX_CHARACTERS:
        raise InputError(f"{path}: {len(text):,} characters of metadata; this is no file of asrnorm.save")
    try:
        content = json.loads(text)
        version, call = content["version"], content["model"]
        steps = [ConversionStep(s["norm"], dict(s["options"]), tuple(s["layers"])) for s in content["conversion"]]
        texts = [text for step in steps for text in (step.norm or "", *step.layers)]
        options = [] if call is None else [call["options"], call["norm_options"]]
        is_sound = all(isinstance(text, str) for text in texts) and all(isinstance(part, dict) for part in options)
    except (ValueError, KeyError, TypeError, RecursionError):
        is_sound = False
    if not is_sound:
        raise InputError(f"{path}: damaged, what was converted cannot be read")
    if version != _VERSION:
        raise InputError(f"{path}: version {version!s:.20} of the format; update asrnorm to read it")
    for step in steps:
        if step.norm is not None:
            NORMS.check(step.norm, step.options)
    return _Saved(path, state, steps, call)


def _build(saved: _Saved) -> nn.Module:
    """Return the network of a file; it is built without memory first, to refuse a file that lies about sizes."""
    path = saved.path
    if saved.call is None:
        raise InputError(
            f"{path}: of a network that asrnorm.create_model did not build; give it, not converted, as model=net"
        )
    try:
        with suppress(NotImplementedError, RuntimeError, TypeError), torch.device("meta"):
            _check_fits(_convert_alike(_create(path, saved.call), saved), saved)
        model = _convert_alike(_create(path, saved.call), saved)
    except AsrnormError:
        raise
    except Exception as error:  # options that this version of the network does not take
        raise InputError(f"{path}: its network cannot be built ({first_line(error)}); give model=net") from error
    _check_fits(model, saved)
    for key, own in _plain_state(model).items():
        own.data = own.data.to(saved.state[key].dtype)
    return _fill(model, saved.state)


def _create(path: Path, call: Mapping[str, Any]) -> nn.Module:
    from asrnorm.models import create_model  # imports this module

    options = call["options"]
    MODELS.check(call["name"], options)
    # A name of timm with a colon is an address to download from.
    if "norm_layer" in options or any(set(":/") & set(value) for value in options.values() if isinstance(value, str)):
        raise InputError(f"{path}: its network has options that a file may not set; give the network: model=net")
    model = create_model(call["name"], norm=call["norm"], norm_options=call["norm_options"], **options)
    return NormalizedInput(model, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)) if call.get("normalize") else model


def _copy_to_meta(model: nn.Module) -> nn.Module:
    """Return a copy of a model without memory for its tensors."""
    memo: dict[int, Any] = {id(b): b.detach().to("meta") for b in model.buffers()}
    memo |= {id(p): nn.Parameter(p.detach().to("meta"), p.requires_grad) for p in model.parameters() if not is_lazy(p)}
    return copy.deepcopy(model, memo)


def _convert_alike(model: nn.Module, saved: _Saved) -> nn.Module:
    """Convert a model as the saved one was; one that `create_model` has converted so is left as it is."""
    if compare_conversions(describe_conversion(model), saved.conversion) is None:
        return model
    known = {name for name, _ in model.named_modules()}
    for norm, options, layers in saved.conversion:
        if absent := next((name for name in layers if name not in known), None):
            raise InputError(
                f"{saved.path}: of another network than this {type(model).__name__}, which has no "
                f"{printable(absent):.80}, a norm that is converted in the file"
            )
        if norm is None:
            raise ConversionError(
                f"{saved.path}: {layers[0]} became a norm that has no registered name, so the file cannot say which; "
                "convert the network as it was, then load"
            )
        try:
            model = convert(model, norm, layers="all" if "" in layers else list(layers), **options)
        except ConversionError as error:
            raise ConversionError(f"{saved.path}: the network cannot be converted as in the file: {error}") from None
    return model


def _check_fits(model: nn.Module, saved: _Saved) -> None:
    """Raise `InputError` that names the first difference between a file's tensors and those of a model."""
    own, difference = _plain_state(model), ""
    for key in (key for key in {**own, **saved.state} if key.rpartition(".")[2] not in LIMITS):
        if key not in own or key not in saved.state:
            difference = f"{key} is only in the {'network' if key in own else 'file'}"
        elif not is_lazy(own[key]) and own[key].shape != saved.state[key].shape:
            here, there = (tuple(tensor.shape) for tensor in (own[key], saved.state[key]))
            difference = f"{key} has shape {there} in the file and {here} in the network"
        if difference:
            kind = type(model).__name__
            raise InputError(f"{saved.path}: of another network than this {kind}: {printable(difference):.200}")
