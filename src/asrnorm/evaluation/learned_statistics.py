"""What ASR-Norm has learned: its lambdas, and `mu_stan` and `sigma_stan` of single images, domain by domain.

Fan et al., CVPR 2021; the t-SNE figure shows the statistics of the first and the last layer, colored by domain.
"""

from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.core.precision import Precision
from asrnorm.data import Suite
from asrnorm.evaluation.inference import Inference
from asrnorm.evaluation.score import evaluation_size, iterate_batches, iterate_domains, subsample

PER_DOMAIN = 200

Arrays = dict[str, NDArray[Any]]


def collect_lambdas(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the lambdas after the sigmoid, by module name; per-channel lambdas are averaged.

    Every module with a method `lambdas()` counts, so users' own layers do too.

    Example:
        >>> from asrnorm.models import create_model
        >>> found = collect_lambdas(create_model("digits_convnet", norm="asr"))
        >>> sorted(found), round(found["norm1"]["lambda_mu"], 4)
        (['norm1', 'norm2'], 0.0474)
    """
    means = {
        (layer, name): value.detach().float().mean()
        for layer, module in model.named_modules()
        if callable(lambdas := getattr(module, "lambdas", None))
        for name, value in lambdas().items()
    }
    found: dict[str, dict[str, float]] = {}
    if means:  # one copy from the device for all layers
        for (layer, name), value in zip(means, torch.stack(list(means.values())).tolist(), strict=True):
            found.setdefault(layer, {})[name] = value
    return found


def learned_statistics(
    model: nn.Module,
    suite: Suite,
    *,
    per_domain: int = PER_DOMAIN,
    batch_size: int = 100,
    precision: Precision = "float32",
    resize: tuple[int, int] | None = None,
) -> Arrays:
    """Return the learned statistics of every image in the first and the last layer that has some.

    First and last refer to the order of the forward pass. Every module with a method `learned_statistics` counts, so
    users' own layers do too. Of the source's test images and of every target at most `per_domain` images are taken,
    spread evenly. The other arguments are those of `score`; `resize` is `evaluation_size` by default. The arrays are
    `domain`, the name for each image, and float32 `mu_first`, `sigma_first`, `mu_last`, `sigma_last`, each `(images,
    channels)`.
    """
    inference = Inference.of(model, precision=precision, size=resize or evaluation_size(suite))
    names: list[str] = []
    with evaluating(model), torch.inference_mode():
        first, last = _find_layers(inference, suite)
        pairs: dict[nn.Module, list[list[NDArray[np.float32]]]] = {first: [], last: []}

        def record(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found = layer.learned_statistics(inputs[0])  # type: ignore[operator]
            pairs[layer].append([value.float().cpu().numpy() for value in found])

        with ExitStack() as hooks:
            for layer in pairs:
                hooks.enter_context(layer.register_forward_pre_hook(record))
            for name, data in iterate_domains(suite):
                for _, images, _ in iterate_batches(subsample(data, per_domain), batch_size):
                    inference.logits(inference.to_input(images))
                    names += [name] * len(images)
    arrays: Arrays = {"domain": np.array(names)}
    for position, layer in (("first", first), ("last", last)):
        for name, values in zip(("mu", "sigma"), zip(*pairs[layer], strict=True), strict=True):
            arrays[f"{name}_{position}"] = np.concatenate(values)
    return arrays


def _find_layers(inference: Inference, suite: Suite) -> tuple[nn.Module, nn.Module]:
    """Return the first and the last layer with learned statistics in a forward pass of one image."""
    called: list[nn.Module] = []

    def append(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if layer.learned_statistics(inputs[0]) is not None:  # type: ignore[operator]
            called.append(layer)

    with ExitStack() as hooks:
        for module in inference.model.modules():
            if callable(getattr(module, "learned_statistics", None)):
                hooks.enter_context(module.register_forward_pre_hook(append))
        _, images, _ = next(iterate_batches(subsample(suite.source_test, 1), 1))
        inference.logits(inference.to_input(images))
    if not called:
        raise InputError("no layer of this model learns its standardization; take a run with norm asr or as")
    return called[0], called[-1]
