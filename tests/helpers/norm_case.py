"""What the contract tests run: each norm with its options, and layers whose parameters are all random."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from asrnorm.norms import create_norm, set_domain

from . import numpy_norms

# The layers whose statistics differ between training and evaluation.
BATCH_NORMS = ("bn", "bn_test", "dsbn", "dson", "sn", "bin")


@dataclass(frozen=True)
class NormCase:
    """A norm, its constructor options, and the mode it is in."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    training: bool = True
    domain: tuple[int, ...] | int | None = None

    def __str__(self) -> str:
        words = [f"{key}={value}" for key, value in self.options.items()]
        if self.domain is not None:
            words.append(f"domain={self.domain}")
        return " ".join([self.name, *words, "" if self.training else "eval"]).strip()

    def layer(self, num_features: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
        """The layer with every parameter and buffer drawn at random, none at a value that hides a term."""
        layer = create_norm(self.name, num_features, **self.options, dtype=dtype).train(self.training)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for key, tensor in layer.state_dict().items():
                if tensor.is_floating_point():
                    tensor.copy_(self._draw(key, tensor, generator))
        if self.domain is not None:
            set_domain(layer, torch.tensor(self.domain) if isinstance(self.domain, tuple) else self.domain)
        return layer

    def _draw(self, key: str, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        uniform = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        if key.endswith(("gate", "running_var")):
            return 0.1 + 0.8 * uniform
        # Matrices have the size of an initialized layer's: larger ones would drive tanh and sigmoid by differences of
        # huge numbers, and float32 would be judged by an ill-conditioned function.
        fan_in = tensor.shape[1] if tensor.ndim == 2 else 1
        if key.startswith("sigma_decoder") and not self.options.get("residual", True):
            # A sigma that the ReLU cuts to zero has no residual term to hold it: x would be divided by eps alone.
            return (0.1 + 0.8 * uniform) / fan_in**0.5
        # Leaning to the positive, so that few hidden units are dead.
        return (0.3 + 0.7 * normal) / fan_in**0.5

    @property
    def numpy_options(self) -> dict[str, Any]:
        domain = {} if self.domain is None else {"domain": np.array(self.domain)}
        return {**self.options, **domain, "training": self.training}


def arrays(layer: nn.Module) -> dict[str, np.ndarray]:
    """The layer's state as float64 arrays of its own."""
    return {key: value.detach().double().numpy().copy() for key, value in layer.state_dict().items()}


def reference(case: NormCase, state: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """What the independent computation makes of `x`."""
    return numpy_norms.forward(case.name, state, x, case.numpy_options)


def draw_input(shape: tuple[int, ...], *, seed: int = 1) -> torch.Tensor:
    """Samples and channels with means and spreads of their own, in float64."""
    generator = torch.Generator().manual_seed(seed)
    rest = (1,) * (len(shape) - 2)
    mean = 0.5 + torch.randn(*shape[:2], *rest, generator=generator, dtype=torch.float64)
    spread = 0.5 + torch.rand(*shape[:2], *rest, generator=generator, dtype=torch.float64)
    return mean + spread * torch.randn(shape, generator=generator, dtype=torch.float64)


def both_modes(*cases: NormCase) -> list[NormCase]:
    return [NormCase(case.name, case.options, training, case.domain) for case in cases for training in (True, False)]


PLAIN = [NormCase(name) for name in ("asr", "as", "ar", "in", "ln", "gn", "sn_in_ln", "ilm", "none")] + both_modes(
    *(NormCase(name) for name in BATCH_NORMS)
)
"""Every registered norm with its default options, in each mode that makes a difference."""

OPTIONED = [
    NormCase("gn", {"num_groups": 4, "eps": 1e-3}),
    NormCase("in", {"eps": 1e-2}),
    NormCase("ln", {"eps": 1e-2}),
    NormCase("ilm", {"group_size": 4, "reduction": 3, "eps": 1e-2}),
    NormCase("sn_in_ln", {"eps": 1e-2}),
    NormCase("sn", {"batch": False}),
    NormCase("asr", {"stan_ratio": 3, "rescale_ratio": 4, "eps": 1e-2}),
    NormCase("asr", {"rescale_features": 5, "activation": "relu"}),
    NormCase("asr", {"standardize": False, "rescale": False}),
    NormCase("as", {"residual": False, "bias": False}),
    NormCase("as", {"per_channel_lambda": True, "statistics": "layer", "stan_ratio": 8}),
    NormCase("ar", {"gated_rescale": True, "share_rescale_encoder": False, "rescale_features": 3}),
    NormCase("ar", {"statistics": "layer", "activation": "relu"}),
    *both_modes(
        NormCase("bn", {"momentum": 0.3, "eps": 1e-2}),
        NormCase("sn", {"momentum": 0.3, "eps": 1e-2}),
        NormCase("bin", {"momentum": 0.3, "eps": 1e-2}),
        NormCase("dsbn", {"num_domains": 3, "momentum": 0.3}, domain=1),
        NormCase("dsbn", {"num_domains": 3}, domain=(2, 0, 2)),
        NormCase("dson", {"num_domains": 3, "momentum": 0.3, "eps": 1e-2}, domain=1),
        NormCase("dson", {"num_domains": 3}, domain=(2, 0, 2)),
        NormCase("as", {"statistics": "batch"}),
        NormCase("ar", {"statistics": "batch"}),
    ),
]
"""Single options away from their defaults, for three samples."""


def asr_options() -> list[NormCase]:
    """All combinations of the switches of `asr` that its constructor admits."""
    cases = []
    switches = itertools.product((True, False), repeat=5)
    for (residual, gated, per_channel, shared, bias), statistics in itertools.product(
        switches, ("instance", "layer", "batch")
    ):
        if not residual and statistics != "instance":
            continue
        options = {
            "residual": residual,
            "gated_rescale": gated,
            "per_channel_lambda": per_channel,
            "share_rescale_encoder": shared,
            "bias": bias,
            "statistics": statistics,
        }
        cases += both_modes(NormCase("asr", options)) if statistics == "batch" else [NormCase("asr", options)]
    return cases
