"""Fit converted norms to source images without training: gains and biases, running statistics, limits of means."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.layer_kind import factory_kwargs
from asrnorm.conversion.replace import NormAct, original_of
from asrnorm.conversion.swap import check_unwrapped, revert
from asrnorm.core.errors import ConversionError, InputError, InputTypeError, count_of
from asrnorm.core.frozen_eval import evaluating
from asrnorm.norms import ASRNorm2d, NormLayer

Images = Tensor | tuple[Tensor, Any] | list[Any]
"""Images `(n, 3, h, w)`, or a tuple or list that starts with them, as loaders yield."""

_LEAST_VARIANCE = 1e-4  # of a standardized channel whose gain is fitted


@dataclass(frozen=True)
class CalibrationReport:
    """The result of a calibration; `print` it.

    Attributes:
        layers: names of the calibrated layers, in the order of their use.
        skipped: names of converted layers that were not used, or have no gain and bias to set.
        channels: number of channels of the calibrated layers.
        unmet: number of channels whose deviation cannot be met, because the layer's networks alone vary more.
    """

    layers: tuple[str, ...]
    skipped: tuple[str, ...]
    channels: int
    unmet: int

    def __str__(self) -> str:
        parts = [f"{count_of(len(self.layers), 'layer')}, {self.channels:,} channels calibrated"]
        if self.unmet:
            parts.append(f"the deviation of {self.unmet:,} could not be met")
        if self.skipped:
            parts.append(f"left alone, without use or without gain and bias: {', '.join(self.skipped)}")
        return "; ".join(parts)


def calibrate(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> CalibrationReport:
    r"""Set gain and bias of every converted norm so that its output has the mean and deviation of the original's.

    A norm's output is $y = g u + v + b$ with gain $g$ and bias $b$ (`gamma_bias` and `beta_bias` of ASR-Norm),
    standardized input $u$ and output $v$ of the rescaling networks. With $m$ and $s$ the mean and standard deviation of
    the channel in the original network over the same images,
    $g^2 \mathrm{var}(u) + 2 g\,\mathrm{cov}(u, v) + \mathrm{var}(v) = s^2$ and $b = m - \mathrm{mean}(g u + v)$. Of the
    two solutions, $g$ is the one under which $y$ rises with $u$ as the original's output did with its input.

    Layers are calibrated in the order of their use, each on the outputs of calibrated layers. Norms use their running
    statistics, in the original and in the converted network, or the batch's if the running ones are those of a new
    layer. Nothing else in the model changes.

    Args:
        model: from `asrnorm.convert`, with its original layers.
        batches: a few batches of source images as the model takes them: tensors, or tuples that start with one. They
            stay in memory, and the model runs on them once for each converted layer.
        num_batches: number of batches to use; `None` uses all.

    Raises:
        ConversionError: nothing to calibrate, or the model is compiled, wrapped or cannot be copied.
        InputError: no images, or images that give NaN or infinity; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> _ = nn.init.uniform_(model[1].weight)
        >>> from asrnorm.conversion import convert
        >>> print(calibrate(convert(model, "asr"), [torch.randn(4, 3, 8, 8)]))
        1 layer, 8 channels calibrated
    """
    check_unwrapped(model)
    converted = {name: module for name, module in model.named_modules() if original_of(module) is not None}
    if not converted:
        raise ConversionError(f"{type(model).__name__} has no converted layer to calibrate; asrnorm.convert it first")
    norms = {name: norm for name, module in converted.items() if (norm := _affine_norm(module)) is not None}
    if not norms:
        raise ConversionError(f"the converted layers of {type(model).__name__} have no gain and bias to calibrate")
    images = list(_read_images(model, batches, num_batches))
    targets = _measure_original(model, norms, images)
    unmet = 0
    pairs = [value for norm in norms.values() for value in norm.affine_pair() if value is not None]
    with _as_deployed(model), _restored_on_error(pairs):
        for name, (moments, sign) in targets.items():
            unmet += _fit(model, norms[name], images, moments, sign)
            _check_finite(norms[name].affine_pair(), name)
    channels = sum(norms[name].num_features for name in targets)
    skipped = tuple(name for name in converted if name not in targets)
    return CalibrationReport(tuple(targets), skipped, channels, unmet)


def reestimate(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> int:
    r"""Set the running statistics of a model's norms to their mean over some batches; return the number of norms.

    $\text{running\_mean} = \frac1B \sum_b \mu_b$, $\text{running\_var} = \frac1B \sum_b \sigma^2_b$ with $\mu_b$ and
    $\sigma^2_b$ the mean and unbiased variance of a channel over batch $b$: what training tracks, without the previous
    values. The norms use the batch's statistics meanwhile, as in training; dropout is off. Parameters do not change.

    Args:
        model: any network; converted or not.
        batches: source images, as in `calibrate`; only one batch is in memory at a time.
        num_batches: number of batches to use; `None` uses all.

    Raises:
        ConversionError: no norm has running statistics, or the model is compiled or wrapped.
        InputError: no images, or images that give NaN or infinity; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm2d(3))
        >>> reestimate(model, [torch.ones(2, 3, 4, 4), 3 * torch.ones(2, 3, 4, 4)])
        1
        >>> model[0].running_mean.tolist(), model[0].running_var.tolist()
        ([2.0, 2.0, 2.0], [0.0, 0.0, 0.0])
    """
    check_unwrapped(model)
    norms = [module for module in model.modules() if tracks_statistics(module)]
    if not norms:
        raise ConversionError(f"{type(model).__name__} has no norm with running statistics")
    momenta = [norm.momentum for norm in norms]
    calls = dict.fromkeys(norms, 0)

    def weigh_equally(norm: nn.Module, _: Tensor) -> None:
        calls[norm] += 1
        norm.momentum = 1 / calls[norm]  # type: ignore[assignment]
        if calls[norm] == 1 and isinstance(norm.num_batches_tracked, Tensor):
            norm.num_batches_tracked.zero_()

    buffers = [buffer for norm in norms for buffer in norm.buffers(recurse=False)]
    with evaluating(model), torch.no_grad(), _before_forward(norms, weigh_equally), _restored_on_error(buffers):
        for norm in norms:
            norm.training = True
        try:
            for images in _read_images(model, batches, num_batches):
                model(images)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
        for name, norm in model.named_modules():
            if calls.get(norm):
                _check_finite((norm.running_mean, norm.running_var), name)
    return sum(number > 0 for number in calls.values())


def confine(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> int:
    r"""Clamp the learned mean of ASR-Norm layers to its range on source images; return the number of layers.

    The network behind $\mu_\text{stan}$ is unbounded. On images unlike the training images, its mean may be many
    standard deviations from the sample's own, which gives activations that later layers have never seen. For every
    channel $c$ of a layer, with $\mu_n$ and $\sigma_n$ of the source images $n$,
    $\min_n \frac{\mu_\text{stan} - \mu_n}{\sigma_n}$ and the maximum become limits, to which the learned mean
    of later images is clamped. Outputs for the source images do not change. Paper: has no such limits.

    The limits are buffers of the layers, saved and exported with the weights. `layer.confine(None, None)` removes
    those of a layer, and so does loading weights without limits. A layer that is not used keeps its limits.

    Args:
        model: a trained network with ASR-Norm or AS in it.
        batches: source images without augmentation, as in `calibrate`; only one batch is in memory at a time.
        num_batches: number of batches to use; `None` uses all.

    Raises:
        ConversionError: no layer learns its standardization, none was used, or the model is compiled or wrapped.
        InputError: no images, or images that give NaN or infinity; the model is unchanged.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), ASRNorm2d(8))
        >>> confine(model, [torch.rand(16, 3, 8, 8)])
        1
        >>> model[1].shift_most.shape
        torch.Size([8])
    """
    check_unwrapped(model)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, ASRNorm2d) and m.standardize}
    if not layers:
        raise ConversionError(f"{type(model).__name__} has no layer that learns its standardization; asr and as do")
    limits: dict[ASRNorm2d, tuple[Tensor | None, ...]] = {m: m.limits or (None, None) for m in layers.values()}
    ranges: dict[ASRNorm2d, tuple[Tensor, Tensor]] = {}

    def widen(layer: Any, x: Tensor) -> None:
        if x.shape[0] == 0:  # a branch without samples
            return
        least, most = torch.aminmax(layer.learned_shift(x), dim=0)
        if layer in ranges:
            least, most = torch.minimum(least, ranges[layer][0]), torch.maximum(most, ranges[layer][1])
        ranges[layer] = least, most

    for layer in layers.values():
        layer.confine(None, None)
    try:
        with evaluating(model), torch.no_grad(), _before_forward(layers.values(), widen):
            for images in _read_images(model, batches, num_batches):
                model(images)
        for name, layer in layers.items():
            _check_finite(ranges.get(layer, ()), name)
        if not ranges:
            raise ConversionError(f"none of {len(layers)} layers was used by {type(model).__name__}")
        limits.update(ranges)
    finally:
        for layer, (least, most) in limits.items():
            layer.confine(least, most)
    return len(ranges)


class Moments:
    """Mean and variance of all added values, `(c,)` each in float64; batches may differ in size."""

    def __init__(self) -> None:
        self.count, self.mean, self.variance = 0, torch.zeros(0), torch.zeros(0)

    def add(self, x: Tensor) -> None:
        """Add activations `(n, c, ...)`."""
        count = x.numel() // x.shape[1]
        wide = x if x.dtype == torch.float64 else x.float()
        variance, mean = (value.double() for value in torch.var_mean(wide, (0, *range(2, x.dim())), correction=0))
        if self.count == 0:
            self.count, self.mean, self.variance = count, mean, variance
            return
        self.count += count
        share = count / self.count
        difference = mean - self.mean
        self.mean = self.mean + share * difference
        self.variance = (1 - share) * self.variance + share * variance + share * (1 - share) * difference.square()


class _Reached(Exception):  # noqa: N818
    """Stops a forward pass once the layer of interest has its input."""


def _measure_original(
    model: nn.Module, names: Iterable[str], images: list[Tensor]
) -> dict[str, tuple[Moments, Tensor]]:
    """Return moments and signs of the gains of the original norms, in the order of use; the first use counts."""
    try:
        original = revert(deepcopy(model))
    except RuntimeError as error:  # a hook computes a weight, as in old-style pruning and weight norm
        raise ConversionError(
            f"{type(model).__name__} cannot be copied, which calibration needs; make pruning and weight norm permanent "
            "first, as torch.nn.utils.prune.remove does"
        ) from error
    layers = {original.get_submodule(name): name for name in names}
    found: dict[str, tuple[Moments, Tensor]] = {}
    seen: set[str] = set()

    def measure(layer: nn.Module, x: Tensor) -> None:
        name = layers[layer]
        if name in seen:
            return
        seen.add(name)
        y = _plain_output(layer, x)
        if name not in found:
            gain = getattr(layer, "weight", None)
            sign = torch.ones(y.shape[1]) if gain is None else torch.where(gain < 0, -1.0, 1.0)
            found[name] = Moments(), sign.to(y.device, torch.float64)
        found[name][0].add(y)

    with _as_deployed(original), _before_forward(layers, measure):
        for batch in images:
            seen.clear()
            original(batch)
    return found


def _fit(model: nn.Module, norm: NormLayer, images: list[Tensor], target: Moments, sign: Tensor) -> int:
    """Set gain and bias of a norm; return the number of channels whose deviation differs from the target's."""
    gain, bias = norm.affine_pair()
    assert gain is not None
    assert bias is not None
    gain_before = gain.to(torch.float64, copy=True)
    below, without, above = curve = (Moments(), Moments(), Moments())

    def measure(layer: nn.Module, x: Tensor) -> None:
        bias.zero_()
        for value, moments in zip((-1.0, 0.0, 1.0), curve, strict=True):
            gain.fill_(value)
            moments.add(_plain_output(layer, x))
        raise _Reached

    with _before_forward([norm], measure):
        for batch in images:
            with suppress(_Reached):
                model(batch)
    # The output is affine in the gain, so its variance is a parabola, determined by three points.
    square = (above.variance + below.variance) / 2 - without.variance
    linear = (above.variance - below.variance) / 4
    root = (linear.square() - square * (without.variance - target.variance)).clamp(min=0).sqrt()
    # A channel that hardly varies keeps its gain, which would otherwise become huge.
    solution = torch.where(square > _LEAST_VARIANCE, (sign * root - linear) / square, gain_before)
    slope = (above.mean - below.mean) / 2
    gain.copy_(solution)
    bias.copy_(target.mean - without.mean - solution * slope)
    reached = (square * solution.square() + 2 * linear * solution + without.variance).clamp(min=0).sqrt()
    wanted = target.variance.sqrt()
    return int(((reached - wanted).abs() > 1e-3 * wanted + 1e-6).sum())


def _plain_output(norm: nn.Module, x: Tensor) -> Tensor:
    """Return the output of a norm without its built-in dropout and activation."""
    parts = {name: part for name in ("drop", "act") if isinstance(part := getattr(norm, name, None), nn.Module)}
    before = parts | ({"activation": norm.activation} if hasattr(norm, "activation") else {})
    for name in before:
        setattr(norm, name, nn.Identity() if name in parts else None)
    try:
        y: Tensor = norm.forward(x)
    finally:
        for name, value in before.items():
            setattr(norm, name, value)
    return y


def _affine_norm(module: nn.Module) -> NormLayer | None:
    norm = module.norm if isinstance(module, NormAct) else module
    return norm if isinstance(norm, NormLayer) and all(value is not None for value in norm.affine_pair()) else None


def tracks_statistics(module: nn.Module) -> bool:
    """Return whether a layer updates running statistics in training; frozen ones have no momentum."""
    buffers = (getattr(module, name, None) for name in ("running_mean", "running_var", "num_batches_tracked"))
    return hasattr(module, "momentum") and all(isinstance(buffer, Tensor) for buffer in buffers)


def _is_new(module: nn.Module) -> bool:
    """Return whether a layer has running statistics with their initial values."""
    mean, variance = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    return mean is not None and variance is not None and not bool(mean.any()) and bool((variance == 1).all())


def _read_images(model: nn.Module, batches: Iterable[Images], num_batches: int | None) -> Iterator[Tensor]:
    """Yield images on the device and in the dtype of a model, batch by batch; raise if there are none."""
    if isinstance(batches, Tensor):
        raise InputTypeError("batches takes several, as a data loader yields them; for one tensor pass [images]")
    if num_batches is not None and num_batches < 0:
        raise InputError(f"num_batches must be at least 0, not {num_batches}")
    like = factory_kwargs(model)
    is_empty = True
    for batch in islice(batches, num_batches):
        images = batch[0] if isinstance(batch, list | tuple) and batch else batch
        if not isinstance(images, Tensor):
            raise InputTypeError(
                f"a batch is a tensor of images, or a tuple that starts with one, not {type(batch).__name__}"
            )
        if not images.is_floating_point():
            raise InputTypeError(
                f"images must be floating-point, as the model takes them, not {images.dtype}; for bytes pass "
                "[batch[0] / 255 for batch in batches]"
            )
        if len(images):
            is_empty = False
            yield images.to(**like)
    if is_empty:
        raise InputError("no images to take statistics of: give one or more batches")


def _check_finite(values: Iterable[Tensor | None], name: str) -> None:
    if not all(bool(value.isfinite().all()) for value in values if value is not None):
        raise InputError(
            f"{name or 'the layer'}: NaN or infinity in its statistics; look for such values in the images"
        )


@contextmanager
def _as_deployed(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, except norms with new running statistics; restore all modes and buffers."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with evaluating(model), torch.no_grad():
        for module in model.modules():
            if _is_new(module):
                module.training = True
        try:
            yield
        finally:
            for buffer, value in buffers:
                buffer.copy_(value)


@contextmanager
def _restored_on_error(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Restore the values of tensors if the block raises."""
    before = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
        raise


@contextmanager
def _before_forward(layers: Iterable[nn.Module], call: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    """Call `call(layer, input)` before each forward of the layers."""

    def hook(layer: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        call(layer, args[0] if args else next(iter(named.values())))

    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
