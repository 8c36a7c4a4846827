"""Blocks that change activations at random in training, after stages or layers of any network: MixStyle and noise.

A block is a forward hook, without parameters: it is no part of `state_dict()`, does nothing in evaluation mode, and is
carried along by deepcopy and pickle. It draws from torch's global generator of the device, as dropout does.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from fnmatch import fnmatchcase
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from asrnorm.conversion.select import Layers, stage_names
from asrnorm.conversion.swap import check_unwrapped
from asrnorm.core.config import Fold
from asrnorm.core.errors import ConversionError, InputError, describe_unknown
from asrnorm.core.registry import Registry

BLOCKS: Registry[Callable[..., "Block"]] = Registry("block")

STAGE_PRESETS = ("auto", "all", "but-last", "early", "first", "stages")


class Block(ABC):
    """A random change of a layer's output in training; hyper-parameters are keyword-only arguments.

    Args:
        p: probability of the batch to be changed.
    """

    fold: Fold = "none"  # the half of the bank of augmentations that it belongs to; `none` is in both

    def __init__(self, *, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise InputError(f"option 'p' of a block must be in 0..1, not {p}")
        self.p = p

    @abstractmethod
    def change(self, x: Tensor) -> Tensor:
        """Return activations `(n, c, ...)` changed; shapes are fixed, and the host reads nothing."""

    def __call__(self, layer: nn.Module, inputs: Any, output: Any) -> Tensor | None:  # noqa: ARG002
        """Change the output of a layer in training mode."""
        if not layer.training:
            return None
        if not isinstance(output, Tensor) or output.ndim < 3:
            raise InputError(
                f"a block needs maps (n, c, ...), and {type(layer).__name__} gives none; use another layer"
            )
        is_on = torch.rand((), device=output.device) < self.p
        return torch.where(is_on, self.change(output), output)


@BLOCKS.register("mixstyle")
class MixStyle(Block):
    r"""MixStyle: mean and deviation of each channel of an image move towards those of another image of the batch.

    $\sigma_\lambda \frac{x - \mu}{\sigma} + \mu_\lambda$ with $\mu_\lambda = \lambda \mu + (1 - \lambda) \mu'$,
    $\sigma_\lambda$ likewise, and $\lambda \sim \mathrm{Beta}(\alpha, \alpha)$ of each image. Zhou, Yang, Qiao and
    Xiang, *Domain Generalization with MixStyle*, ICLR 2021. After layers that remove these statistics, as IN and
    ASR-Norm do, it has little to mix.

    Args:
        p: probability of the batch to be changed.
        alpha: $\alpha$.
    """

    def __init__(self, *, p: float = 0.5, alpha: float = 0.1) -> None:
        super().__init__(p=p)
        if alpha <= 0:
            raise InputError(f"option 'alpha' of mixstyle must be above 0, not {alpha}")
        self.alpha = alpha

    def change(self, x: Tensor) -> Tensor:
        """Mix the statistics of each image with another's."""
        axes, wide = tuple(range(2, x.ndim)), torch.promote_types(x.dtype, torch.float32)
        variance, mean = torch.var_mean(x.detach().to(wide), axes, keepdim=True)
        deviation = (variance + 1e-6).sqrt()
        other = torch.rand(len(x), device=x.device).argsort()
        part = draw_beta(self.alpha, self.alpha, len(x), x.device).to(wide).view(-1, *[1] * (x.ndim - 1))
        mixed_mean, mixed_deviation = (torch.lerp(value[other], value, part) for value in (mean, deviation))
        return ((x - mean) / deviation * mixed_deviation + mixed_mean).to(x.dtype)


@BLOCKS.register("noise")
class NoiseInjection(Block):
    r"""Noise injection: additive normal and multiplicative uniform noise on activations.

    $x (1 + m b\, u) + a b'\, \epsilon$ with $u$ uniform in -1..1, $\epsilon$ normal and
    $b, b' \sim \mathrm{Beta}(2, 5)$ of the batch. Erichson et al., *NoisyMix*, 2022, which draws one layer for each
    step; here every chosen layer draws for itself with probability `p`.

    Args:
        p: probability of the batch to be changed.
        additive: $a$.
        multiplicative: $m$.
    """

    fold = "values"

    def __init__(self, *, p: float = 0.5, additive: float = 0.5, multiplicative: float = 0.5) -> None:
        super().__init__(p=p)
        if min(additive, multiplicative) < 0:
            raise InputError(f"levels of the block noise must be at least 0, not {additive} and {multiplicative}")
        self.additive, self.multiplicative = additive, multiplicative

    def change(self, x: Tensor) -> Tensor:
        """Add and multiply noise."""
        added, multiplied = draw_beta(2.0, 5.0, 2, x.device).to(x.dtype)
        factor = 1 + self.multiplicative * multiplied * (2 * torch.rand_like(x) - 1)
        return x * factor + self.additive * added * torch.randn_like(x)


def draw_beta(first: float, second: float, count: int, device: torch.device) -> Tensor:
    """Return numbers of a Beta distribution from the device's global generator, float64 `(count,)`."""
    pair = torch.empty((count, 2), dtype=torch.float64, device=device)
    pair[:, 0], pair[:, 1] = first, second
    gamma = torch._standard_gamma(pair).clamp_(min=1e-300)
    return gamma[:, 0] / gamma.sum(1)


def insert(model: nn.Module, block: str | Block, *, layers: Layers = "auto", **options: Any) -> nn.Module:
    """Insert a block after stages or layers of a model in place and return it; `remove` takes all blocks out.

    Args:
        model: any network.
        block: a registry name, or a `Block`.
        layers: after which outputs: a preset, names or patterns of any modules (`"layer1"`), or a function of name and
            module. Presets choose stages as `convert` does: `"early"` the first half of them, which `"auto"` takes,
            `"but-last"` all but the last, `"stages"` and `"all"` every one, `"first"` the first.
        **options: options of the block, if it is given by name.

    Raises:
        ConversionError: the model is compiled or wrapped, or nothing was chosen.
        UnknownNameError: the block or an option is unknown.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        >>> _ = insert(model, "noise", layers="0", p=1.0)
        >>> x = torch.rand(2, 3, 8, 8)
        >>> bool((model(x) == model(x)).all()), bool((model.eval()(x) == model(x)).all())
        (False, True)
    """
    check_unwrapped(model)
    if isinstance(block, str):
        BLOCKS.check(block, options)
        block = BLOCKS[block](**options)
    for module in _choose(model, layers):
        module.register_forward_hook(block)
    return model


def remove(model: nn.Module) -> nn.Module:
    """Take all blocks out of a model and return it.

    Raises:
        ConversionError: there is none.

    Example:
        >>> model = insert(nn.Sequential(nn.Conv2d(3, 8, 3)), "noise", layers="0")
        >>> len(remove(model)[0]._forward_hooks)
        0
    """
    hooks = [(module, *item) for module in model.modules() for item in module._forward_hooks.items()]
    found = [(module, key) for module, key, hook in hooks if isinstance(hook, Block)]
    if not found:
        raise ConversionError(f"{type(model).__name__} has no block to remove; asrnorm.insert puts them in")
    for module, key in found:
        del module._forward_hooks[key]
    return model


def _choose(model: nn.Module, layers: Layers) -> list[nn.Module]:
    modules = {name: module for name, module in model.named_modules() if name}
    if callable(layers):
        names = [name for name, module in modules.items() if layers(name, module)]
    elif isinstance(layers, str) and layers in STAGE_PRESETS:
        names = _choose_stages(model, layers)
    else:
        patterns = [layers] if isinstance(layers, str) else list(layers)
        names = [name for name in modules if any(fnmatchcase(name, pattern) for pattern in patterns)]
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in modules):
                raise ConversionError(
                    describe_unknown("preset or layer", pattern, [*STAGE_PRESETS, *list(modules)[:12]])
                )
    if not names:
        raise ConversionError(f"layers chooses no layer of {type(model).__name__}: give a preset, names or patterns")
    return [modules[name] for name in names]


def _choose_stages(model: nn.Module, preset: str) -> list[str]:
    stages = stage_names(model)
    if len(stages) < 2:
        raise ConversionError(
            f"preset {preset!r} needs numbered stages, and {type(model).__name__} shows none; name layers instead"
        )
    counts = {"first": 1, "but-last": len(stages) - 1, "stages": len(stages), "all": len(stages)}
    return stages[: counts.get(preset, ceil(len(stages) / 2))]
