"""Estimate the running statistics of norms anew, as for weights whose file lacks them."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.calibration import refuse_infinite
from asrnorm.conversion.image_batch import Images, place_images
from asrnorm.conversion.refusal import refuse_wrapped
from asrnorm.errors import ConversionError


def reestimate(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> int:
    r"""Set the running statistics of a model's norms to the mean of those of some batches; return of how many norms.

    $\text{running\_mean} = \frac1B \sum_b \mu_b$, $\text{running\_var} = \frac1B \sum_b \sigma^2_b$ with $\mu_b$ and
    $\sigma^2_b$ the mean and unbiased variance of a channel over batch $b$: what training tracks, without the weight of
    what was there before. In the pass these norms use the batch's statistics, as in training; dropout is off. No
    parameter is changed.

    Args:
        model: any network; converted or not.
        batches: batches of source images, as the model takes them: tensors, or pairs as loaders give them.
        num_batches: take the first so many; all where `None`.

    Raises:
        ConversionError: no norm keeps running statistics, or the model is compiled or wrapped.
        InputError: no images, or such as give NaN or infinity; nothing is changed.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm2d(3))
        >>> reestimate(model, [torch.ones(2, 3, 4, 4), 3 * torch.ones(2, 3, 4, 4)])
        1
        >>> model[0].running_mean.tolist(), model[0].running_var.tolist()
        ([2.0, 2.0, 2.0], [0.0, 0.0, 0.0])
    """
    refuse_wrapped(model)
    norms = [module for module in model.modules() if _tracks(module)]
    if not norms:
        raise ConversionError(f"{type(model).__name__} has no norm that keeps running statistics")
    momenta = [norm.momentum for norm in norms]
    before = [{name: value.clone() for name, value in norm.named_buffers(recurse=False)} for norm in norms]
    modes = [(module, module.training) for module in model.modules()]
    calls = dict.fromkeys(norms, 0)

    def count(norm: nn.Module, _: tuple[Tensor, ...]) -> None:
        calls[norm] += 1
        norm.momentum = 1 / calls[norm]  # type: ignore[assignment]
        if calls[norm] == 1 and isinstance(norm.num_batches_tracked, Tensor):
            norm.num_batches_tracked.zero_()

    handles = [norm.register_forward_pre_hook(count) for norm in norms]
    model.eval()
    for norm in norms:
        norm.training = True
    try:
        with torch.no_grad():
            for images in place_images(model, batches, num_batches):
                model(images)
        for name, norm in model.named_modules():
            if calls.get(norm):
                refuse_infinite((norm.running_mean, norm.running_var), name)
    except BaseException:
        for norm, values in zip(norms, before, strict=True):
            for name, value in values.items():
                getattr(norm, name).copy_(value)
        raise
    finally:
        for handle in handles:
            handle.remove()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
    return sum(number > 0 for number in calls.values())


def _tracks(module: nn.Module) -> bool:
    """Tell whether a layer updates running statistics in training; frozen ones have them and no momentum."""
    parts: list[Any] = [getattr(module, name, None) for name in ("running_mean", "running_var", "num_batches_tracked")]
    return all(isinstance(part, Tensor) for part in parts) and hasattr(module, "momentum")
