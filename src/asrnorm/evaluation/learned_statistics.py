"""The lambdas of a network's ASR layers: how far each has moved from the native statistics to the learned ones.

What ASR-Norm has learned to standardize by: `mu_stan` and `sigma_stan` of single images, domain by domain.

Fan et al., CVPR 2021: the t-SNE figure shows them for the first and the last layer, colored by domain.
"""

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.core.precision import Precision
from asrnorm.data import Suite
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import evaluation_size, iterate_batches, thin
from asrnorm.methods.frozen_eval import evaluating


def collect_lambdas(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the squashed lambdas of every layer that has some, by module name; the mean where they are per channel.

    A layer is known by its method `lambdas()`, so that a user's own layers are found too.

    Example:
        >>> from asrnorm.models import create_model
        >>> found = collect_lambdas(create_model("digits_convnet", norm="asr"))
        >>> sorted(found), round(found["norm1"]["lambda_mu"], 4)
        (['norm1', 'norm2'], 0.0474)
    """
    names: list[tuple[str, str]] = []
    means = []
    for layer_name, module in model.named_modules():
        lambdas = getattr(module, "lambdas", None)
        if not callable(lambdas):
            continue
        for name, value in lambdas().items():
            names.append((layer_name, name))
            means.append(value.detach().float().mean())
    found: dict[str, dict[str, float]] = {}
    if means:  # one copy from the device for all layers
        for (layer_name, name), value in zip(names, torch.stack(means).tolist(), strict=True):
            found.setdefault(layer_name, {})[name] = value
    return found


PER_DOMAIN = 200

Arrays = dict[str, NDArray[Any]]


def learned_statistics(
    model: nn.Module,
    suite: Suite,
    *,
    per_domain: int = PER_DOMAIN,
    batch_size: int = 100,
    device: torch.device | str | None = None,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
) -> Arrays:
    """Return the learned statistics of the first and the last layer that has some, image by image.

    First and last are by the order in which a forward pass meets them. A layer is known by its method
    `learned_statistics`, so that a user's own layers are found too.

    Args:
        model: takes float images in [0, 1], returns logits.
        suite: its source test images come first, then its targets.
        per_domain: the most images of a domain, spread evenly over it.
        batch_size: the most images in a batch.
        device: where the model lies; found from its parameters where `None`.
        precision: `bfloat16` computes under autocast.
        resize: height and width to which images are resized first; the suite's own for evaluation where `None`.

    Returns:
        `domain`, the name of each image's, and float32 `mu_first`, `sigma_first`, `mu_last`, `sigma_last`,
        `(images, channels)` each.

    Raises:
        InputError: no layer of the model learns its standardization.
    """
    inference = Inference.of(model, device=device, precision=precision, size=resize or evaluation_size(suite))
    domains = [("+".join(suite.sources), lambda: suite.source_test)]
    domains += [(name, lambda name=name: suite.targets[name]) for name in suite.target_names]  # type: ignore[misc]
    names: list[str] = []
    with evaluating(model):
        layers = _outermost(inference, thin(suite.source_test, 1))
        found = {part: _Recorder() for part in layers}
        with ExitStack() as hooks:
            for part, layer in layers.items():
                hooks.enter_context(layer.register_forward_pre_hook(found[part]))
            for name, load in domains:
                for _, images, _ in iterate_batches(thin(load(), per_domain), batch_size):
                    with torch.inference_mode():
                        inference.logits(inference.to_input(images))
                    names += [name] * len(images)
    arrays: Arrays = {"domain": np.array(names)}
    for part, recorder in found.items():
        arrays[f"mu_{part}"], arrays[f"sigma_{part}"] = recorder.arrays()
    return arrays


class _Recorder:
    """A hook that keeps what a layer has learned of each of its inputs."""

    def __init__(self) -> None:
        self._kept: list[tuple[NDArray[np.float32], ...]] = []

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        pair = layer.learned_statistics(inputs[0])  # type: ignore[operator]
        self._kept.append(tuple(value.float().cpu().numpy() for value in pair))

    def arrays(self) -> list[NDArray[np.float32]]:
        return [np.concatenate(values) for values in zip(*self._kept, strict=True)]


def _outermost(inference: Inference, data: Any) -> dict[str, nn.Module]:
    """Return the first and the last layer with learned statistics, as one image meets them."""
    met: list[nn.Module] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.learned_statistics(inputs[0]) is not None:  # type: ignore[operator]
            met.append(layer)

    with ExitStack() as hooks:
        for module in inference.model.modules():
            if callable(getattr(module, "learned_statistics", None)):
                hooks.enter_context(module.register_forward_pre_hook(note))
        _, images, _ = next(iterate_batches(data, 1))
        with torch.inference_mode():
            inference.logits(inference.to_input(images))
    if not met:
        raise InputError("no layer of this model learns its standardization; take a run with norm asr or as")
    return {"first": met[0], "last": met[-1]}
