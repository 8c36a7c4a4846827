"""What the contract tests need to know of the norms, in one place."""

import torch

from asrnorm.norms import NORMS, create_norm

ALL = NORMS.names()
# Statistics that never cross samples: a sample's output does not depend on its neighbours, nor on the mode.
PER_SAMPLE = ("ar", "as", "asr", "gn", "ilm", "in", "ln", "none", "sn_in_ln")
# Norms whose statistic over a single value of a channel is no statistic.
NEEDS_SPATIAL = ("ar", "bin", "dson", "ilm", "in", "sn", "sn_in_ln")
NEEDS_BATCH = ("bn", "bn_test", "dsbn")


def randomized(name: str, num_features: int, dtype: torch.dtype = torch.float32, **options) -> torch.nn.Module:
    """A layer whose parameters are all away from their start, lambdas and gates inside (0, 1)."""
    layer = create_norm(name, num_features, dtype=dtype, **options)
    generator = torch.Generator().manual_seed(num_features)
    with torch.no_grad():
        for key, parameter in layer.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
            if key == "gate":
                parameter.copy_(torch.sigmoid(noise))
            elif key.startswith("lambda"):
                parameter.copy_(noise)
            else:
                parameter.add_(0.3 * noise)
    return layer
