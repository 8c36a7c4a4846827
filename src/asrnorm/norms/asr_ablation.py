"""The two halves of ASR-Norm: AS (adaptive standardization) and AR (adaptive rescaling).

Fan et al., CVPR 2021, tables 5 and 9. The paper does not spell them out: AS keeps a static gain and bias, AR
standardizes by the sample's own statistics.
"""

import torch

from asrnorm.norms.asr import ASRNorm2d, Statistics
from asrnorm.norms.base import NORMS


@NORMS.register("as")
class ASNorm2d(ASRNorm2d):
    """AS: learned standardization, static gain and bias (the paper's first ablation).

    Example:
        >>> ASNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        stan_ratio: int = 2,
        residual: bool = True,
        bias: bool = True,
        statistics: Statistics = "instance",
        per_channel_lambda: bool = False,
        lambda_init: float = -3.0,
        eps: float = 1e-5,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features,
            stan_ratio=stan_ratio,
            rescale=False,
            residual=residual,
            bias=bias,
            statistics=statistics,
            per_channel_lambda=per_channel_lambda,
            lambda_init=lambda_init,
            eps=eps,
            activation=activation,
            device=device,
            dtype=dtype,
        )


@NORMS.register("ar")
class ARNorm2d(ASRNorm2d):
    """AR: the sample's own standardization, learned rescaling (the paper's second ablation).

    Example:
        >>> ARNorm2d(8)(torch.randn(2, 8, 4, 4)).shape
        torch.Size([2, 8, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        *,
        rescale_ratio: int = 16,
        rescale_features: int | None = None,
        gated_rescale: bool = False,
        bias: bool = True,
        share_rescale_encoder: bool = True,
        statistics: Statistics = "instance",
        per_channel_lambda: bool = False,
        gate_init: float = -5.0,
        eps: float = 1e-5,
        activation: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            num_features,
            rescale_ratio=rescale_ratio,
            rescale_features=rescale_features,
            standardize=False,
            gated_rescale=gated_rescale,
            bias=bias,
            share_rescale_encoder=share_rescale_encoder,
            statistics=statistics,
            per_channel_lambda=per_channel_lambda,
            gate_init=gate_init,
            eps=eps,
            activation=activation,
            device=device,
            dtype=dtype,
        )
