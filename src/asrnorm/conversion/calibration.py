"""Mean and variance of every channel over many batches.

Batches of images from whatever a user's loader gives, as calibration and reestimation take them.

Let converted norms give their outputs the mean and deviation that the norms they replaced gave them.

Estimate the running statistics of norms anew, as for weights whose file lacks them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.layer_kind import default_factory
from asrnorm.conversion.replace import NormAct, original_of
from asrnorm.conversion.swap import count_layers, refuse_wrapped, revert
from asrnorm.core.errors import ConversionError, InputError, InputTypeError
from asrnorm.norms import NormLayer


class Moments:
    """The moments of all values that were added, `(c,)` each in float64; batches may differ in size.

    Example:
        >>> moments = Moments()
        >>> for batch in torch.arange(12.0).reshape(3, 2, 2, 1, 1):
        ...     moments.add(batch)
        >>> moments.mean.tolist(), moments.variance.tolist()
        ([5.0, 6.0], [11.66666..., 11.66666...])
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0)
        self.variance = torch.zeros(0)

    def add(self, x: Tensor) -> None:
        """Take in activations `(n, c, ...)`."""
        count = x.numel() // x.shape[1]
        wide = x if x.dtype == torch.float64 else x.float()
        variance, mean = (value.double() for value in torch.var_mean(wide, (0, *range(2, x.dim())), correction=0))
        if self.count == 0:
            self.count, self.mean, self.variance = count, mean, variance
            return
        total = self.count + count
        share = count / total
        apart = mean - self.mean
        self.mean = self.mean + share * apart
        self.variance = (1 - share) * self.variance + share * variance + share * (1 - share) * apart.square()
        self.count = total


Images = Tensor | tuple[Tensor, Any] | list[Any]
"""Images `(n, 3, h, w)`, or a pair of them and something else, as loaders give."""


def place_images(model: nn.Module, batches: Iterable[Images], num_batches: int | None) -> Iterator[Tensor]:
    """Yield images on the device and in the dtype of a model, batch by batch.

    Raises:
        InputError: there were none, or a negative number was asked for.
        InputTypeError: a tensor in place of batches, or a batch that is no tensor and does not start with one.
    """
    if isinstance(batches, Tensor):
        raise InputTypeError(
            "batches takes several, as a data loader gives them; of one tensor of images make [images]"
        )
    if num_batches is not None and num_batches < 0:
        raise InputError(f"num_batches must be at least 0, not {num_batches}")
    like = default_factory(model)
    empty = True
    for batch in islice(batches, num_batches):
        images = batch[0] if isinstance(batch, list | tuple) and batch else batch
        if not isinstance(images, Tensor):
            raise InputTypeError(
                f"a batch is a tensor of images, or a tuple that starts with one, not {type(batch).__name__}"
            )
        if not images.is_floating_point():
            raise InputTypeError(
                f"images must be what the model takes, floating-point, not {images.dtype}; of bytes make "
                "[batch[0] / 255 for batch in batches]"
            )
        if len(images):
            empty = False
            yield images.to(**like)
    if empty:
        raise InputError("no images to take statistics of: give a batch or more")


_LEAST = 1e-4  # variance of a standardized channel that is taken for one that varies


@dataclass(frozen=True)
class CalibrationReport:
    """What a calibration did; `print` it.

    Attributes:
        layers: names of the calibrated layers, in the order of their use.
        skipped: names of converted layers that were not used, or have no gain and bias of their own to set.
        channels: in the calibrated layers.
        unmet: channels of them whose deviation could not be met, since what the layer's networks add varies more.
    """

    layers: tuple[str, ...]
    skipped: tuple[str, ...]
    channels: int
    unmet: int

    def __str__(self) -> str:
        parts = [f"{count_layers(len(self.layers))}, {self.channels:,} channels calibrated"]
        parts += [f"the deviation of {self.unmet:,} could not be met"] if self.unmet else []
        parts += (
            [f"left alone, without use or without gain and bias: {', '.join(self.skipped)}"] if self.skipped else []
        )
        return "; ".join(parts)


def calibrate(model: nn.Module, batches: Iterable[Images], *, num_batches: int | None = None) -> CalibrationReport:
    r"""Set gain and bias of every converted norm so that its output has the moments of the original's.

    A norm's output is $y = g u + v + b$ with gain $g$ and bias $b$ (`gamma_bias` and `beta_bias` of ASR-Norm); $u$ is
    the standardized input, $v$ what the rescaling networks add. With $m$ and $s$ the mean and standard deviation that
    the norm it replaced gave the channel in the original network, over the same images,
    $g^2 \mathrm{var}(u) + 2 g\,\mathrm{cov}(u, v) + \mathrm{var}(v) = s^2$ and $b = m - \mathrm{mean}(g u + v)$. Of the
    two gains, the one under which $y$ rises with $u$ as the original's output did with its input.

    Layers are calibrated in the order of their use, each on inputs from layers that are calibrated already. Norms
    with running statistics use them, in the original and in the converted network; norms whose running statistics are
    those of a fresh layer use the batch's. Nothing else of the model is changed.

    Args:
        model: from `asrnorm.convert`, with its original layers.
        batches: a few batches of source images, as the model takes them: tensors, or pairs as loaders give them. They
            are kept in memory and gone through once for each converted layer.
        num_batches: take the first so many; all where `None`.

    Raises:
        ConversionError: nothing to calibrate, or the model is compiled, wrapped or cannot be copied.
        InputError: no images, or such as give NaN or infinity; nothing is changed.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> _ = nn.init.uniform_(model[1].weight)
        >>> from asrnorm.conversion import convert
        >>> print(calibrate(convert(model, "asr"), [torch.randn(4, 3, 8, 8)]))
        1 layer, 8 channels calibrated
    """
    refuse_wrapped(model)
    converted = {name: module for name, module in model.named_modules() if original_of(module) is not None}
    if not converted:
        raise ConversionError(f"{type(model).__name__} holds no converted layer to calibrate; asrnorm.convert it first")
    norms = {name: norm for name, module in converted.items() if (norm := _with_pair(module)) is not None}
    if not norms:
        raise ConversionError(f"the converted layers of {type(model).__name__} have no gain and bias to calibrate")
    images = list(place_images(model, batches, num_batches))
    targets = _original_moments(model, norms, images)
    unmet = 0
    with as_in_use(model), _all_or_nothing(norms.values()):
        for name in targets:  # in the order of use
            unmet += _fit(model, norms[name], images, targets[name])
            refuse_infinite(norms[name].affine_pair(), name)
    channels = sum(norms[name].num_features for name in targets)
    skipped = tuple(name for name in converted if name not in targets)
    return CalibrationReport(tuple(targets), skipped, channels, unmet)


@contextmanager
def as_in_use(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode for a while, except norms whose running statistics are those of a fresh layer.

    Those use the batch's. All modes and buffers are put back.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.eval()
    for module in model.modules():
        if _is_fresh(module):
            module.training = True
    try:
        with torch.no_grad():
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        for module, training in modes:
            module.training = training


def refuse_infinite(values: Iterable[Tensor | None], name: str) -> None:
    """Refuse statistics of a layer that are not finite.

    Raises:
        InputError: with the layer's name.
    """
    if not all(bool(value.isfinite().all()) for value in values if value is not None):
        raise InputError(
            f"{name or 'the layer'}: NaN or infinity in its statistics; look for such values in the images"
        )


@contextmanager
def _all_or_nothing(norms: Iterable[NormLayer]) -> Iterator[None]:
    """Put gains and biases back where not all of them could be set."""
    pairs = [(value, value.clone()) for norm in norms for value in norm.affine_pair() if value is not None]
    try:
        yield
    except BaseException:
        for value, before in pairs:
            value.copy_(before)
        raise


@dataclass(frozen=True)
class _Target:
    """What a norm did in the original network: the moments of its output, and the signs of its gains."""

    moments: Moments
    sign: Tensor


class _Reached(Exception):  # noqa: N818
    """The layer has its input: the rest of the network need not run."""


def _original_moments(model: nn.Module, names: Iterable[str], images: list[Tensor]) -> dict[str, _Target]:
    """The targets by name, in the order of use; a layer that is used several times is known by its first use."""
    try:
        original = revert(deepcopy(model))
    except RuntimeError as error:  # of a weight that a hook computes, as old-style pruning and weight norm have it
        raise ConversionError(
            f"{type(model).__name__} cannot be copied, which calibration needs; make pruning and weight norm permanent "
            "first, as torch.nn.utils.prune.remove does"
        ) from error
    layers = {original.get_submodule(name): name for name in names}
    found: dict[str, _Target] = {}
    seen: set[str] = set()

    def look(layer: nn.Module, x: Tensor) -> None:
        name = layers[layer]
        if name in seen:
            return
        seen.add(name)
        y = _plain_output(layer, x)
        if name not in found:
            gain = getattr(layer, "weight", None)
            sign = torch.ones(y.shape[1]) if gain is None else torch.where(gain < 0, -1.0, 1.0)
            found[name] = _Target(Moments(), sign.to(y.device, torch.float64))
        found[name].moments.add(y)

    with as_in_use(original), _watching(layers, look):
        for batch in images:
            seen.clear()
            original(batch)
    return found


def _fit(model: nn.Module, norm: NormLayer, images: list[Tensor], target: _Target) -> int:
    """Set gain and bias of a norm; return how many of its channels have another deviation than the target."""
    gain, bias = norm.affine_pair()
    assert gain is not None
    assert bias is not None
    before = gain.clone(), bias.clone()
    below, without, above = curve = (Moments(), Moments(), Moments())

    def measure(layer: nn.Module, x: Tensor) -> None:
        bias.zero_()
        for value, moments in zip((-1.0, 0.0, 1.0), curve, strict=True):
            gain.fill_(value)
            moments.add(_plain_output(layer, x))
        raise _Reached

    try:
        with _watching([norm], measure):
            for batch in images:
                with suppress(_Reached):
                    model(batch)
    finally:
        gain.copy_(before[0])
        bias.copy_(before[1])
    # The output is affine in the gain, so that its variance is a parabola, known from three points.
    square = (above.variance + below.variance) / 2 - without.variance
    linear = (above.variance - below.variance) / 4
    wanted = target.moments.variance
    root = (linear.square() - square * (without.variance - wanted)).clamp(min=0).sqrt()
    # A channel that does not vary would be blown up: its gain stays.
    solution = torch.where(square > _LEAST, (target.sign * root - linear) / square, before[0].double())
    slope = (above.mean - below.mean) / 2
    gain.copy_(solution)
    bias.copy_(target.moments.mean - without.mean - solution * slope)
    reached = (square * solution.square() + 2 * linear * solution + without.variance).clamp(min=0).sqrt()
    return int(((reached - wanted.sqrt()).abs() > 1e-3 * wanted.sqrt() + 1e-6).sum())


@contextmanager
def _watching(layers: Iterable[nn.Module], look: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    """Call `look(layer, input)` whenever one of the layers is about to run."""

    def hook(layer: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        look(layer, args[0] if args else next(iter(named.values())))

    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _plain_output(norm: nn.Module, x: Tensor) -> Tensor:
    """The output of a norm before the dropout and activation that it may have built in."""
    inside = {name: part for name in ("drop", "act") if isinstance(part := getattr(norm, name, None), nn.Module)}
    activation = getattr(norm, "activation", None)
    for name in inside:
        setattr(norm, name, nn.Identity())
    if activation is not None:
        norm.activation = None  # type: ignore[assignment]
    try:
        y: Tensor = norm.forward(x)
    finally:
        for name, part in inside.items():
            setattr(norm, name, part)
        if activation is not None:
            norm.activation = activation
    return y


def _with_pair(module: nn.Module) -> NormLayer | None:
    norm = module.norm if isinstance(module, NormAct) else module
    return norm if isinstance(norm, NormLayer) and all(value is not None for value in norm.affine_pair()) else None


def _is_fresh(module: nn.Module) -> bool:
    mean, variance = getattr(module, "running_mean", None), getattr(module, "running_var", None)
    if mean is None or variance is None:
        return False
    return not bool(mean.any()) and bool((variance == 1).all())


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
