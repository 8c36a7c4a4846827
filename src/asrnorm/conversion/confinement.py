"""Confine what ASR-Norm has learned to subtract to the range it has on source images."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from asrnorm.conversion.calibration import Images, place_images, refuse_infinite
from asrnorm.conversion.swap import refuse_wrapped
from asrnorm.core.errors import ConversionError
from asrnorm.norms import ASRNorm2d


def confine(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> int:
    r"""Let no image be shifted further than the source images are; return of how many layers.

    The network behind $\mu_\text{stan}$ has no bound. On images unlike those of the training it may answer with a mean
    that is many deviations off the sample's own, and nothing behind the layer has met such activations. For every
    channel $c$ of a layer, with $\mu_n$ and $\sigma_n$ of the source images $n$,
    $\min_n \frac{\mu_\text{stan} - \mu_n}{\sigma_n}$ and the maximum over them become limits: later images whose
    learned mean lies beyond are given the one at the limit. On the source images themselves nothing changes.
    Paper: has no such limit.

    The limits are buffers of the layers, kept with the weights and exported with them. `layer.confine(None, None)`
    removes those of a layer, and loading weights that have none does so too. A layer that is not used keeps its own.

    Args:
        model: a trained network with ASR-Norm or AS in it.
        batches: source images as the model takes them, without augmentation: tensors, or pairs as loaders give them.
        num_batches: take the first so many; all where `None`.

    Raises:
        ConversionError: no layer learns its standardization, none was used, or the model is compiled or wrapped.
        InputError: no images, or such as give NaN or infinity; nothing is changed.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), ASRNorm2d(8))
        >>> confine(model, [torch.rand(16, 3, 8, 8)])
        1
        >>> model[1].shift_most.shape
        torch.Size([8])
    """
    refuse_wrapped(model)
    layers = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, ASRNorm2d) and layer.standardize
    }
    if not layers:
        raise ConversionError(f"{type(model).__name__} has no layer that learns its standardization; asr and as do")
    before = {name: layer.limits for name, layer in layers.items()}
    ranges: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def widen(layer: ASRNorm2d, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        x = inputs[0] if inputs else named["x"]
        if x.shape[0] == 0:  # of a branch that no sample took
            return
        least, most = torch.aminmax(layer.learned_shift(x), dim=0)
        if layer in ranges:
            least, most = torch.minimum(least, ranges[layer][0]), torch.maximum(most, ranges[layer][1])
        ranges[layer] = least, most

    modes = [(module, module.training) for module in model.modules()]
    handles = [layer.register_forward_pre_hook(widen, with_kwargs=True) for layer in layers.values()]
    for layer in layers.values():
        layer.confine(None, None)
    model.eval()
    try:
        with torch.no_grad():
            for images in place_images(model, batches, num_batches):
                model(images)
        for name, layer in layers.items():
            if layer in ranges:
                refuse_infinite(ranges[layer], name)
        if not ranges:
            raise ConversionError(f"none of {len(layers)} layers was used by {type(model).__name__}")
    except BaseException:
        for name, layer in layers.items():
            layer.confine(*(before[name] or (None, None)))
        raise
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    for name, layer in layers.items():
        layer.confine(*ranges.get(layer, before[name] or (None, None)))
    return len(ranges)
