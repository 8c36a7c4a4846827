"""The parameters of a layer: one by one as the kernels take them, and in the groups of the reference."""

from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from asrnorm.norms import reference


class Weights(NamedTuple):
    """Parameters of a layer; `None` for what it lacks. One rescaling encoder for both: no `gamma_enc_w`."""

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
    def shared(self) -> bool:
        """Whether gain and bias share an encoder."""
        return self.gamma_enc_w is None

    @property
    def logits(self) -> int:
        """Length of a lambda: one, or one a channel."""
        lambdas = (self.lambda_mu, self.lambda_beta)
        return max((1 if value is None else value.numel() for value in lambdas), default=1)

    def networks(self) -> tuple[Tensor | None, ...]:
        """Return the arguments of the kernels, from `enc_w` to `lambda_gamma`."""
        return self.both_encoders()[:18]

    def both_encoders(self) -> "Weights":
        """Return the weights with the shared encoder in both places."""
        return self._replace(gamma_enc_w=self.beta_enc_w, gamma_enc_b=self.beta_enc_b) if self.shared else self


def flat_size(w: Weights) -> int:
    """Return how many numbers the gradients of all parameters are."""
    C, H, R, L = w.gamma_bias.numel(), w.hidden, w.rescale_hidden, w.logits
    encoders = 1 if w.shared else 2
    return 3 * C * H + (2 + encoders) * C * R + 6 * C + H + encoders * R + 4 * L


def split_gradients(flat: Tensor, w: Weights) -> Weights:
    """Return the gradient of every parameter, as views of the flat tensor; `None` where there is no parameter."""
    encoders = 1 if w.shared else 2
    parts = flat.split(_sizes(w.gamma_bias.numel(), w.hidden, w.rescale_hidden, w.logits, encoders))
    pairs = zip(w, _PLACES, strict=True)
    grads: list[Any] = [None if value is None else _as(parts[place], value) for value, place in pairs]
    return Weights(*grads)


_ORDER = (
    "mu_w", "sigma_w", "enc_w", "beta_w", "gamma_w", "beta_enc_w", "gamma_enc_w",
    "mu_b", "sigma_b", "beta_b", "gamma_b", "gamma_bias", "beta_bias", "enc_b", "beta_enc_b", "gamma_enc_b",
    "lambda_mu", "lambda_sigma", "lambda_beta", "lambda_gamma",
)  # fmt: skip
_PLACES = tuple(_ORDER.index(name) for name in Weights._fields)


@lru_cache(maxsize=256)
def _sizes(C: int, H: int, R: int, L: int, encoders: int) -> list[int]:
    """How many numbers each part of the flat tensor has, in its order."""
    second = encoders - 1
    return [C * H, C * H, H * C, C * R, C * R, R * C, second * R * C, *[C] * 6, H, R, second * R, *[L] * 4]


def _as(part: Tensor, value: Tensor) -> Tensor:
    """A part in the shape and dtype of its parameter."""
    shaped = part if part.shape == value.shape else part.view(value.shape)
    return shaped if value.dtype == part.dtype else shaped.to(value.dtype)


def standardize_nets(w: Weights) -> reference.StandardizeNets | None:
    """Return the weights of f and g as the reference takes them."""
    if w.enc_w is None or w.mu_w is None or w.sigma_w is None:
        return None
    dense = reference.Dense
    decoders = dense(w.mu_w, w.mu_b), dense(w.sigma_w, w.sigma_b)
    return reference.StandardizeNets(dense(w.enc_w, w.enc_b), *decoders, w.lambda_mu, w.lambda_sigma)


def rescale_nets(w: Weights) -> reference.RescaleNets | None:
    """Return the weights of psi and phi as the reference takes them."""
    if w.beta_enc_w is None or w.beta_w is None or w.gamma_w is None:
        return None
    dense = reference.Dense
    beta_encoder = dense(w.beta_enc_w, w.beta_enc_b)
    gamma_encoder = beta_encoder if w.gamma_enc_w is None else dense(w.gamma_enc_w, w.gamma_enc_b)
    decoders = dense(w.beta_w, w.beta_b), dense(w.gamma_w, w.gamma_b)
    return reference.RescaleNets(beta_encoder, gamma_encoder, *decoders, w.lambda_beta, w.lambda_gamma)


def flatten(
    standardize: reference.StandardizeNets | None,
    rescale: reference.RescaleNets | None,
    gamma_bias: Tensor,
    beta_bias: Tensor,
) -> Weights:
    """Return the weights as the kernels take them: dense, which those of a parametrized layer need not be."""
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
    return Weights(*(value if value is None or value.is_contiguous() else value.contiguous() for value in parts))
