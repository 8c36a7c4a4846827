"""Networks by name from torchvision and timm, with weights from a file or the library's own."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from asrnorm.audit.form import Form
from asrnorm.core.errors import InputError, MissingDependencyError, first_line
from asrnorm.data.suites.base import IMAGENET_MEAN, IMAGENET_STD
from asrnorm.models.weights import read_state, unwrap_state

LIBRARIES = ("torchvision", "timm")


def build_from_library(library: str, name: str, weights: str | None, form: Form) -> tuple[nn.Module, Form]:
    """Return a network of a library, and the form of its input: ImageNet's mean and deviation unless given.

    Args:
        library: `torchvision` or `timm`.
        name: of the network there.
        weights: a file, or what the library calls its own weights, such as `DEFAULT` for torchvision, and `pretrained`
            or a tag for timm.
        form: what the caller has settled.

    Raises:
        MissingDependencyError: the library is not installed.
        InputError: no such network, or weights that do not fit.
    """
    try:
        module = import_module(library)
        models = import_module("torchvision.models") if library == "torchvision" else module
    except ImportError:
        raise MissingDependencyError(f"{library}:{name} needs {library}: pip install 'asrnorm[vision]'") from None
    except Exception as error:  # a build for another torch fails in any way
        raise MissingDependencyError(
            f"{library}:{name} needs {library}, which fails here ({first_line(error)}); see asrnorm doctor"
        ) from error
    if weights is None:
        raise InputError(
            f"{library}:{name} has no weights; give --weights FILE, or --weights "
            f"{'DEFAULT' if library == 'torchvision' else 'pretrained'} for the library's own"
        )
    try:
        network = _build(library, models, name, weights)
    except InputError:
        raise
    except Exception as error:  # unknown name, unknown weights, no network to fetch them over: each its own class
        raise InputError(f"{library}:{name} with weights {weights!r} cannot be built ({first_line(error)})") from error
    if form.mean is not None:
        return network, form
    own = getattr(network, "pretrained_cfg", None) or {}
    mean, std = own.get("mean", IMAGENET_MEAN), own.get("std", IMAGENET_STD)
    return network, replace(form, mean=tuple(mean), std=tuple(std))


def _build(library: str, models: Any, name: str, weights: str) -> nn.Module:
    if not Path(weights).is_file():
        if library == "torchvision":
            fetched: nn.Module = models.get_model(name, weights=weights)
        else:
            fetched = models.create_model(name if weights == "pretrained" else f"{name}.{weights}", pretrained=True)
        return fetched
    state = read_weights(Path(weights))
    make = partial(models.get_model, weights=None) if library == "torchvision" else partial(models.create_model)
    order = make(name).state_dict()  # of the network's own: files of some formats are sorted by name
    state = unwrap_state(state, order)
    network: nn.Module = make(name, num_classes=_count_classes(state, order, weights))
    load_strictly(network, state, weights)
    return network


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of weights, and never run what else is in it.

    Raises:
        InputError: missing, damaged, or more than weights.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of a strange pickle before it refuses it
        return read_state(path)


def load_strictly(network: nn.Module, state: dict[str, Tensor], path: str | Path) -> None:
    """Load a state that must fit whole: an audit of half a network would be of none.

    Raises:
        InputError: a tensor is missing, left over, or of another shape.
    """
    own = network.state_dict()
    state = unwrap_state(state, own)
    strange = [
        *(f"lacks {key}" for key in own if key not in state),
        *(f"has {key} besides" for key in state if key not in own),
        *(f"has {key} of another shape" for key in state if key in own and state[key].shape != own[key].shape),
    ]
    try:
        network.load_state_dict(state)  # its layers may take what they lack, as limits of a learned mean
    except Exception as error:  # of layers that load in ways of their own, anything
        if not strange and not isinstance(error, RuntimeError):
            raise
        raise InputError(
            f"{path}: not the weights of this {type(network).__name__}: it "
            + (strange[0] if strange else f"does not load ({first_line(error)})")
            + (f" ({len(strange)} tensors differ)" if len(strange) > 1 else "")
        ) from None


def _count_classes(state: Mapping[str, Tensor], order: Iterable[str], weights: str) -> int:
    """The outputs of a classifier: as many as its last bias has values."""
    biases = [state[key] for key in order if key.endswith("bias") and key in state and state[key].ndim == 1]
    if not biases:
        raise InputError(f"{weights}: has no bias to tell the number of classes by; give file.py:function instead")
    return len(biases[-1])
