"""safetensors: the weights alone, beside the config that builds the network for them."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from asrnorm.config import RunConfig, dump_config, load_config
from asrnorm.data import create_suite
from asrnorm.errors import InputError
from asrnorm.exporting.base import FORMATS, FileFormat, Network, Subject
from asrnorm.models import Classifier
from asrnorm.models.weight import pack_state, read_state
from asrnorm.training.assembly import build_like

CONFIG, CARD = ".yaml", ".json"


@FORMATS.register("safetensors")
class WeightFile(FileFormat):
    """Weights in a `.safetensors` file and the config in `<file>.yaml`; `load_weight_file` makes the model of them."""

    suffix = ".safetensors"
    is_traced = False

    def encode(self, subject: Subject) -> tuple[bytes, dict[str, Any]]:
        """Return the tensors by name."""
        return pack_state(subject.model.state_dict()), {}

    def open(self, path: Path, subject: Subject) -> Network:
        """Build the network anew and give it the weights of the file."""
        return _build(path, subject.run.config, len(subject.run.classes))

    def sidecars(self, subject: Subject) -> dict[str, bytes]:
        """Return the config."""
        return {CONFIG: dump_config(subject.run.config).encode()}


def load_weight_file(path: str | Path) -> Classifier:
    """Return the model of an exported `.safetensors` file, in evaluation mode on the CPU.

    Args:
        path: the file; `<path>.yaml` and `<path>.json` lie beside it.

    Raises:
        InputError: a file is missing or damaged, or they do not belong together.
    """
    path = Path(path)
    config = load_config(path.with_name(path.name + CONFIG))
    card = path.with_name(path.name + CARD)
    try:
        classes = json.loads(card.read_text())["classes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{card}: missing or damaged; export the run again") from error
    return _build(path, config, len(classes))


def _build(path: Path, config: RunConfig, num_classes: int) -> Classifier:
    state: dict[str, Tensor] = read_state(path)
    suite = create_suite(config.suite.name, **config.suite.args)
    try:
        return build_like(config, suite, num_classes, torch.device("cpu"), state).eval()
    except RuntimeError as error:  # load_state_dict lists every key
        raise InputError(f"{path}: not the weights of {path.name}{CONFIG}") from error
