"""The absence of normalization, under the same contract."""

import torch
from torch import Tensor

from asrnorm.norms.base import NORMS, NormLayer, check_num_features


@NORMS.register("none")
class NoNorm(NormLayer):
    """No normalization: the input, as it is.

    Args:
        num_features: C, which the input is still checked for.
        device: taken for the contract's sake.
        dtype: likewise.

    Attributes:
        copies: give a copy, as every other norm does; set where it takes the place of one, since what follows may
            change its input in place.

    Example:
        >>> x = torch.randn(2, 8, 4, 4)
        >>> NoNorm(8)(x) is x
        True
    """

    copies: bool = False

    def __init__(
        self,
        num_features: int,
        *,
        device: torch.device | str | None = None,  # noqa: ARG002
        dtype: torch.dtype | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__()
        check_num_features(num_features)
        self.num_features = num_features

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`."""
        self.check_input(x)
        return x.clone() if self.copies else x
