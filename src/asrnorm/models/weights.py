"""Pretrained weights from a file: torchvision's `.pth`, safetensors, with or without head and running statistics."""

import hashlib
import io
import json
import logging
import pickle
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from asrnorm.core.errors import InputError, first_line
from asrnorm.models.base import Classifier
from asrnorm.norms import BatchNorm
from asrnorm.norms.base import NormLayer

logger = logging.getLogger("asrnorm")

_CHECKSUM = "sha256"
_LONGEST_HEADER = 100_000_000  # bytes, as in the format's own reader
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_STATES = ("state_dict", "model_state_dict", "model")  # what training scripts keep a network's under, beside others
# Before every key: of DataParallel, DDP and averaged models; of torch.compile; of a run that normalizes its images.
_WRAPPERS = ("module.", "_orig_mod.", "backbone.")


@dataclass(frozen=True)
class WeightReport:
    """What a file of weights did not hold.

    Attributes:
        fresh_head: the classifier kept its fresh initialization (absent, or for another number of classes).
        fresh_statistics: how many norm layers kept running mean 0 and variance 1, to be estimated by training.
    """

    path: str
    fresh_head: bool
    fresh_statistics: int

    def __str__(self) -> str:
        parts = ["the classifier is new"] if self.fresh_head else []
        if self.fresh_statistics:
            parts.append(
                f"running statistics of {self.fresh_statistics} norms are absent and start at mean 0, variance 1"
            )
        return f"{self.path}: loaded" + (f"; {'; '.join(parts)}" if parts else " whole")


def load_weights(model: nn.Module, path: str | Path) -> WeightReport:
    """Load a backbone's weights into a model with BatchNorm, and say what the file lacked.

    Half-precision files are widened to the model's dtype. Pickles are loaded with `weights_only`, so that a hostile
    file cannot run code.

    Args:
        model: a network whose keys the file has, torchvision's for the ResNets here.
        path: a `.safetensors` file, or one of `torch.save`.

    Returns:
        What was not in the file.

    Raises:
        InputError: the file is missing, damaged, or for another network.
    """
    network, classifier = model.loadable() if isinstance(model, Classifier) else (model, "fc")
    own = network.state_dict()
    state = unwrap_state(read_state(Path(path)), own)
    of_head = [f"{classifier}.{name}" for name in ("weight", "bias")]
    head = {key for key in of_head if key in own and (key not in state or state[key].shape != own[key].shape)}
    state = {key: value for key, value in state.items() if key not in head and not (key in of_head and key not in own)}
    missing = own.keys() - state.keys() - head
    absent_statistics = {key for key in missing if key.rsplit(".", 1)[-1] in _RUNNING}
    wrong = [key for key in state.keys() & own.keys() if state[key].shape != own[key].shape]
    strange = (missing - absent_statistics) | (state.keys() - own.keys()) | set(wrong)
    if strange:
        layers = {key.rpartition(".")[0] for key in strange}
        advice = "the file is of another network"
        if any(isinstance(layer, NormLayer) and not isinstance(layer, BatchNorm) for layer in network.modules()):
            advice = "load into a model built with norm='bn', then convert it"
        if strange == set(wrong) and len(layers) == 1:
            advice = f"if {layers.pop()} is the classifier, let the model's loadable() say so, and it starts anew"
        raise InputError(
            f"{path}: not the weights of this {type(network).__name__}: {len(strange)} keys differ, such as "
            f"{', '.join(sorted(strange)[:3])}; {advice}"
        )
    bad = sorted(key for key, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all()))
    if bad:
        raise InputError(f"{path}: values that are not finite, such as in {bad[0]}; the file is of a failed training")
    network.load_state_dict(state, strict=False)
    means = sum(key.endswith("running_mean") for key in absent_statistics)
    report = WeightReport(str(path), bool(head), means)
    logger.info("%s", report)
    return report


def pack_state(state: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the bytes of a `.safetensors` file, with a checksum of them in its metadata.

    The format has none of its own: a flipped bit would be another weight. Equal tensors give equal bytes.

    Example:
        >>> pack_state({"weight": torch.ones(2)}) == pack_state({"weight": torch.ones(2)})
        True
    """
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    plain = io.BytesIO(save(tensors))
    return bytes(save(tensors, metadata={_CHECKSUM: _checksum(_read_header(plain), plain)}))


def _refuse_damaged(path: Path) -> None:
    with path.open("rb") as file:
        header = _read_header(file)
        named = header.pop("__metadata__", {}).get(_CHECKSUM)
        if named is not None and named != _checksum(header, file):
            raise InputError(f"{path}: damaged, its checksum does not fit")


def _read_header(file: BinaryIO) -> dict[str, Any]:
    length = int.from_bytes(file.read(8), "little")
    header: dict[str, Any] = json.loads(file.read(min(length, _LONGEST_HEADER)))
    return header


def _checksum(header: dict[str, Any], rest: BinaryIO) -> str:
    """Of names, types and shapes of tensors, and of the tensors that follow."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    while block := rest.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` or `torch.save` file by name."""
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            _refuse_damaged(path)
            return load_file(path)
        with warnings.catch_warnings(action="ignore"):  # on pickle protocols and the like, of files that are refused
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (ImportError, InputError):
        raise
    except Exception as error:  # damage shows anywhere in the readers, and safetensors has an error class of its own
        if is_pickle_refusal(error):
            raise InputError(f"{path}: holds more than tensors, or is no weights file; it is not loaded") from error
        kind = "safetensors file" if path.suffix == ".safetensors" else "file of weights"
        raise InputError(f"{path}: damaged, or not a {kind} ({first_line(error)})") from error
    if isinstance(content, dict):
        content = next((content[key] for key in _STATES if isinstance(content.get(key), dict)), content)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{path}: holds no state dict")
    return {str(key): value for key, value in content.items()}


def unwrap_state(state: dict[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """Return a state without what a wrapper around the network put before every name.

    Args:
        state: as it was saved.
        own: the names that the network has; where one of them is in the state, nothing is taken off.

    Example:
        >>> unwrap_state({"n_averaged": torch.tensor(3), "module.weight": torch.ones(1)}, ["weight"])
        {'weight': tensor([1.])}
    """
    if "n_averaged" not in own:
        state = {key: value for key, value in state.items() if key != "n_averaged"}
    of_run = {key: value for key, value in state.items() if key not in ("mean", "std")}
    if len(of_run) == len(state) - 2 and all(key.startswith("backbone.") for key in of_run):
        state = of_run
    while state and not state.keys() & set(own):
        prefix = next((one for one in _WRAPPERS if all(key.startswith(one) for key in state)), None)
        if prefix is None:
            break
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state


def is_pickle_refusal(error: Exception) -> bool:
    """Whether torch refused to unpickle: its message then advises to load the file unsafely, and is not passed on."""
    return isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error)
