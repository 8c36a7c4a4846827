"""Read and write weights files: safetensors and `torch.save`, with or without head and running statistics."""

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
from asrnorm.core.reading import check_pickle, parse_json
from asrnorm.models.base import Classifier
from asrnorm.norms import BatchNorm
from asrnorm.norms.base import NormLayer

logger = logging.getLogger("asrnorm")

_CHECKSUM = "sha256"
_LONGEST_HEADER = 10_000_000  # bytes; 100,000 tensors. The format's own reader takes ten times as many, in a minute
_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_STATES = ("state_dict", "model_state_dict", "model")  # keys of the network in checkpoints of training scripts
# Prefixes of DataParallel, DDP and averaged models; of torch.compile; of `NormalizedInput`.
_PREFIXES = ("module.", "_orig_mod.", "backbone.")


@dataclass(frozen=True)
class WeightReport:
    """What a weights file lacked."""

    path: str
    fresh_head: bool  # the classifier kept its initialization (absent, or for another number of classes)
    fresh_statistics: int  # norm layers that kept running mean 0 and variance 1, to be estimated by training

    def __str__(self) -> str:
        parts = ["the classifier is new"] if self.fresh_head else []
        if self.fresh_statistics:
            parts.append(
                f"running statistics of {self.fresh_statistics} norms are absent and start at mean 0, variance 1"
            )
        return f"{self.path}: loaded" + (f"; {'; '.join(parts)}" if parts else " whole")


def load_weights(model: nn.Module, path: str | Path) -> WeightReport:
    """Load pretrained weights into a model with BatchNorm; return what the file lacked.

    Half-precision values are converted to the model's dtype. Pickles are loaded with `weights_only`, so that a hostile
    file cannot run code. An `InputError` says that the file is missing, damaged, or for another network.
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
            advice = f"if {layers.pop()} is the classifier, return its name from the model's loadable()"
        raise InputError(
            f"{path}: not the weights of this {type(network).__name__}: {len(strange)} keys differ, such as "
            f"{', '.join(sorted(strange)[:3])}; {advice}"
        )
    bad = sorted(key for key, value in state.items() if value.is_floating_point() and not bool(value.isfinite().all()))
    if bad:
        raise InputError(
            f"{path}: {bad[0]} has values that are not finite; the training that wrote the file has failed"
        )
    network.load_state_dict(state, strict=False)
    report = WeightReport(str(path), bool(head), sum(key.endswith("running_mean") for key in absent_statistics))
    logger.info("%s", report)
    return report


def pack_state(state: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return tensors as the bytes of a `.safetensors` file with a checksum in its metadata.

    The format itself has no checksum, so a flipped bit would go unnoticed. Equal tensors give equal bytes. A tensor
    that shares its memory, as tied weights do, is written under each of its names.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in state.items():
        tensors[name] = value.detach().cpu().contiguous()
        if (memory := tensors[name].untyped_storage().data_ptr()) in seen:
            tensors[name] = tensors[name].clone()
        seen.add(memory)
    plain = io.BytesIO(save(tensors))
    header = _read_header(plain)
    described = {"__metadata__": dict(metadata), **header} if metadata else header
    values = {**(metadata or {}), _CHECKSUM: _checksum(described, plain)}
    # Written here, because the library writes several values of metadata in a random order.
    text = json.dumps({"__metadata__": values, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + int.from_bytes(plain.getbuffer()[:8], "little")
    return b"".join((len(text).to_bytes(8, "little"), text, plain.getbuffer()[start:]))


def verify_checksum(path: Path) -> None:
    """Raise `InputError` unless a `.safetensors` file has the checksum of `pack_state`, or none."""
    try:
        with path.open("rb") as file:
            header = _read_header(file)
            named = header.get("__metadata__", {}).pop(_CHECKSUM, None)
            if not header.get("__metadata__"):
                header.pop("__metadata__", None)
            intact = named is None or named == _checksum(header, file)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: damaged, or not a safetensors file ({first_line(error)})") from error
    if not intact:
        raise InputError(f"{path}: damaged, its checksum does not match")


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a `.safetensors` file that `read_state` has accepted."""
    with path.open("rb") as file:
        return dict(_read_header(file).get("__metadata__", {}))


def _read_header(file: BinaryIO) -> dict[str, Any]:
    length = int.from_bytes(file.read(8), "little")
    if length > _LONGEST_HEADER:
        raise InputError(f"a header of {length:,} bytes, more than {_LONGEST_HEADER:,}")
    header: dict[str, Any] = parse_json(file.read(length))
    return header


def _checksum(header: dict[str, Any], rest: BinaryIO) -> str:
    """Hash the names, dtypes and shapes in the header, and the tensors that follow it."""
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    while block := rest.read(1 << 20):
        found.update(block)
    return found.hexdigest()


def read_state(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` or `torch.save` file by name."""
    if not path.is_file():
        raise InputError(f"{path}: no such weights file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            verify_checksum(path)
            return load_file(path)
        with path.open("rb") as file:
            check_pickle(file)
        with warnings.catch_warnings(action="ignore"):  # about pickle protocols and the like, before it fails
            content = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError:
        raise
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(f"{path}: ") else f"{path}: {error}") from error
    except Exception as error:  # damage surfaces anywhere in the readers; safetensors has its own error class
        # torch refused to unpickle it; its message, which advises unsafe loading, is not passed on.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
            raise InputError(f"{path}: more than tensors, or not a weights file; it is not loaded") from error
        kind = "safetensors file" if path.suffix == ".safetensors" else "weights file"
        raise InputError(f"{path}: damaged, or not a {kind} ({first_line(error)})") from error
    if isinstance(content, dict):
        content = next((content[key] for key in _STATES if isinstance(content.get(key), dict)), content)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{path}: contains no state dict")
    return {str(key): value for key, value in content.items()}


def unwrap_state(state: dict[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """Return a state dict without the prefix of a wrapper; unchanged if it has one of the network's `own` keys."""
    if "n_averaged" not in own:
        state = {key: value for key, value in state.items() if key != "n_averaged"}
    of_run = {key: value for key, value in state.items() if key not in ("mean", "std")}
    if len(of_run) == len(state) - 2 and all(key.startswith("backbone.") for key in of_run):
        state = of_run
    while state and not state.keys() & set(own):
        prefix = next((one for one in _PREFIXES if all(key.startswith(one) for key in state)), None)
        if prefix is None:
            break
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    return state
