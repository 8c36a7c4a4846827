"""The parameters of a layer in the order in which kernels take them, and their gradients in one flat tensor."""

from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from asrnorm.norms.reference import Dense, RescaleNets, StandardizeNets


class Weights(NamedTuple):
    """Parameters of a layer, `None` for those it lacks; without `gamma_enc_w`, gain and bias share `beta_enc_w`."""

    enc_w: Tensor | None
    enc_b: Tensor | None
    mu_w: Tensor | None
    mu_b: Tensor | None
    sigma_w: Tensor | None
    sigma_b: Tensor | None
    lambda_mu: Tensor | None
    lambda_sigma: Tensor | None
    beta_enc_w: Tensor | None
    beta_enc_b: Tensor | None
    gamma_enc_w: Tensor | None
    gamma_enc_b: Tensor | None
    beta_w: Tensor | None
    beta_b: Tensor | None
    gamma_w: Tensor | None
    gamma_b: Tensor | None
    lambda_beta: Tensor | None
    lambda_gamma: Tensor | None
    gamma_bias: Tensor
    beta_bias: Tensor

    @property
    def hidden(self) -> int:
        """Hidden units of the standardization networks."""
        return 0 if self.enc_w is None else self.enc_w.shape[0]

    @property
    def rescale_hidden(self) -> int:
        """Hidden units of the rescaling networks."""
        return 0 if self.beta_enc_w is None else self.beta_enc_w.shape[0]

    @property
    def rescale_encoders(self) -> int:
        """Number of rescaling encoders: 1 where gain and bias share it."""
        return 1 if self.gamma_enc_w is None else 2

    @property
    def logits(self) -> int:
        """Length of a lambda: one, or one per channel."""
        logit = self.lambda_beta if self.lambda_mu is None else self.lambda_mu
        return 1 if logit is None else logit.numel()

    def both_encoders(self) -> "Weights":
        """Return the weights with a shared rescaling encoder written out twice."""
        if self.rescale_encoders == 2:
            return self
        return Weights._make([*self[:10], *self[8:10], *self[12:]])

    def sizes(self) -> tuple[int, int, int, int, int]:
        """Return channels, both numbers of hidden units, the length of a lambda, and the rescaling encoders."""
        return self.gamma_bias.numel(), self.hidden, self.rescale_hidden, self.logits, self.rescale_encoders


def flatten(
    standardize: StandardizeNets | None, rescale: RescaleNets | None, gamma_bias: Tensor, beta_bias: Tensor
) -> Weights:
    """Return the weights as the kernels take them; those of a parametrized layer may need a contiguous copy."""
    stan: list[Any] = [None] * 8
    if standardize is not None:
        s = standardize
        stan = [*s.encoder, *s.mu_decoder, *s.sigma_decoder, s.lambda_mu, s.lambda_sigma]
    scale: list[Any] = [None] * 10
    if rescale is not None:
        r = rescale
        second = (None, None) if r.gamma_encoder.weight is r.beta_encoder.weight else r.gamma_encoder
        scale = [*r.beta_encoder, *second, *r.beta_decoder, *r.gamma_decoder, r.lambda_beta, r.lambda_gamma]
    parts: list[Any] = [*stan, *scale, gamma_bias, beta_bias]
    if not all([value is None or value.is_contiguous() for value in parts]):  # noqa: C419 a generator takes longer
        parts = [None if value is None else value.contiguous() for value in parts]
    return Weights._make(parts)


def unflatten(w: Weights) -> tuple[StandardizeNets | None, RescaleNets | None, Tensor, Tensor]:
    """Return the weights as the reference takes them, the inverse of `flatten`."""
    standardize = rescale = None
    if w.enc_w is not None and w.mu_w is not None and w.sigma_w is not None:
        decoders = Dense(w.mu_w, w.mu_b), Dense(w.sigma_w, w.sigma_b)
        standardize = StandardizeNets(Dense(w.enc_w, w.enc_b), *decoders, w.lambda_mu, w.lambda_sigma)
    if w.beta_enc_w is not None and w.beta_w is not None and w.gamma_w is not None:
        beta_encoder = Dense(w.beta_enc_w, w.beta_enc_b)
        gamma_encoder = beta_encoder if w.gamma_enc_w is None else Dense(w.gamma_enc_w, w.gamma_enc_b)
        decoders = Dense(w.beta_w, w.beta_b), Dense(w.gamma_w, w.gamma_b)
        rescale = RescaleNets(beta_encoder, gamma_encoder, *decoders, w.lambda_beta, w.lambda_gamma)
    return standardize, rescale, w.gamma_bias, w.beta_bias


_GRADIENT_ORDER = (
    "mu_w", "sigma_w", "enc_w", "beta_w", "gamma_w", "beta_enc_w", "gamma_enc_w",
    "mu_b", "sigma_b", "beta_b", "gamma_b", "gamma_bias", "beta_bias", "enc_b", "beta_enc_b", "gamma_enc_b",
    "lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma",
)  # fmt: skip
"""Order in the flat tensor, as `weight_gradient_kernel` writes it."""


@lru_cache(maxsize=256)
def gradient_offsets(C: int, H: int, R: int, L: int, encoders: int) -> tuple[list[int], int]:
    """Return where each gradient starts in the flat tensor, in the order of `Weights`, and the tensor's size."""
    second = (encoders - 1) * R
    sizes = [C * H, C * H, H * C, C * R, C * R, R * C, second * C, *[C] * 6, H, R, second, *[L] * 4]
    starts = list(accumulate(sizes, initial=0))
    return [starts[_GRADIENT_ORDER.index(name)] for name in Weights._fields], starts[-1]


def split_gradients(flat: Tensor, w: Weights) -> Weights:
    """Return the gradient of every parameter as a part of the flat tensor, `None` for parameters the layer lacks."""
    pairs = zip(w, gradient_offsets(*w.sizes())[0], strict=True)
    # Tensors in the same memory that autograd does not know as views, as it returns gradients itself; also faster.
    with torch._C._AutoDispatchBelowADInplaceOrView():
        grads: list[Any] = [None if v is None else flat.as_strided(v.shape, v.stride(), start) for v, start in pairs]
    if any([v is not None and v.dtype != flat.dtype for v in w]):  # noqa: C419 a generator takes longer
        grads = [None if v is None else grad.to(v.dtype) for grad, v in zip(grads, w, strict=True)]
    return Weights._make(grads)
