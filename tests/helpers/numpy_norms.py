"""Every norm layer a second time, in NumPy, written from the equations of its source and sharing no code with ours.

`asr`, `as`, `ar` follow section 3 of the ASR-Norm paper and its PACS paragraph, `sn` and `ilm` their authors' published
layers, `bin` and `dson` their papers, the rest the textbook definitions. Parameters go by the keys of our layers'
`state_dict`.

All is analytic but for the ReLUs, which look at the real part: fed a complex number with a tiny imaginary part, the
functions return their derivative in the imaginary part (see `derivative.py`). Hence no `abs`, no `np.var`.

Shapes: n samples, c channels, p positions (all spatial axes as one), h hidden units, g groups.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray
State = Mapping[str, Array]
Options = Mapping[str, Any]

EPS = 1e-5
MOMENTUM = 0.1


def relu(z: Array) -> Array:
    return np.where(z.real > 0, z, 0)


def sigmoid(z: Array) -> Array:
    return (1 + np.tanh(z / 2)) / 2  # no exponential that could overflow


def softmax(z: Array) -> Array:
    exponentials = np.exp(z)
    return exponentials / exponentials.sum()


def dense(state: State, name: str, z_ni: Array) -> Array:
    """Fully-connected layer `name`, with its bias where the state has one."""
    out_no = np.einsum("oi,ni->no", state[f"{name}.weight"], z_ni)
    return out_no + state[f"{name}.bias"] if f"{name}.bias" in state else out_no


def moments(x: Array, axes: tuple[int, ...], ddof: int = 0) -> tuple[Array, Array]:
    """Mean and variance over some axes, which stay as ones; `ddof=1` gives the unbiased variance."""
    count = np.prod([x.shape[axis] for axis in axes])
    mean = x.sum(axes, keepdims=True) / count
    return mean, ((x - mean) ** 2).sum(axes, keepdims=True) / (count - ddof)


def largest_divisor(number: int, limit: int) -> int:
    return max(d for d in range(1, min(number, limit) + 1) if number % d == 0)


def affine(state: State, x_ncp: Array, prefix: str = "") -> Array:
    return x_ncp * state[f"{prefix}weight"][:, None] + state[f"{prefix}bias"][:, None]


def standardize(x_ncp: Array, mean: Array, var: Array, options: Options) -> Array:
    """The usual form, eps under the root. ASR-Norm has its own, beside sigma."""
    return (x_ncp - mean) / np.sqrt(var + options.get("eps", EPS))


def batch_moments(state: State, x_ncp: Array, training: bool, prefix: str = "") -> tuple[Array, Array]:
    """Those of the batch in training (biased), the running ones in evaluation; `(1, c, 1)`."""
    if training:
        return moments(x_ncp, (0, 2))
    return state[f"{prefix}running_mean"][None, :, None], state[f"{prefix}running_var"][None, :, None]


# --- ASR-Norm and its two ablations -----------------------------------------------------------------------------------


def asr(state: State, x_ncp: Array, options: Options) -> Array:
    eps = options.get("eps", EPS)
    mean, var = moments(x_ncp, (2,))
    mu, sigma = mean[..., 0], np.sqrt(var[..., 0] + eps)

    mu_stan, sigma_stan = native_statistics(state, x_ncp, options, eps)
    if options.get("standardize", True):
        learned_mu = dense(state, "mu_decoder", relu(dense(state, "stan_encoder", mu)))
        learned_sigma = relu(dense(state, "sigma_decoder", relu(dense(state, "stan_encoder", sigma))))
        if options.get("residual", True):
            lambda_mu, lambda_sigma = sigmoid(state["lambda_mu"]), sigmoid(state["lambda_sigma"])
            # Ours: the learned mean stays within 32 var / sigma of the native one.
            reach = 32 * (sigma_stan - eps / sigma_stan)
            least, most = mu_stan - reach, mu_stan + reach
            mu_stan = lambda_mu * learned_mu + (1 - lambda_mu) * mu_stan
            mu_stan = np.where(mu_stan.real < least.real, least, np.where(mu_stan.real > most.real, most, mu_stan))
            sigma_stan = lambda_sigma * learned_sigma + (1 - lambda_sigma) * sigma_stan
        else:
            mu_stan, sigma_stan = learned_mu, learned_sigma

    beta, gamma = state["beta_bias"], state["gamma_bias"]
    if options.get("rescale", True):
        shared = options.get("share_rescale_encoder", True)
        beta_encoder, gamma_encoder = ("rescale_encoder",) * 2 if shared else ("beta_encoder", "gamma_encoder")
        learned_beta = np.tanh(dense(state, "beta_decoder", relu(dense(state, beta_encoder, mu))))
        learned_gamma = sigmoid(dense(state, "gamma_decoder", relu(dense(state, gamma_encoder, sigma))))
        if options.get("gated_rescale", False):
            learned_beta = sigmoid(state["lambda_beta"]) * learned_beta
            learned_gamma = sigmoid(state["lambda_gamma"]) * learned_gamma
        beta, gamma = learned_beta + beta, learned_gamma + gamma

    x_stan = (x_ncp - mu_stan[..., None]) / (sigma_stan[..., None] + eps)
    y_ncp = x_stan * gamma[..., None] + beta[..., None]
    return relu(y_ncp) if options.get("activation") == "relu" else y_ncp


def native_statistics(state: State, x_ncp: Array, options: Options, eps: float) -> tuple[Array, Array]:
    """Mean and deviation that the residual term keeps; `(n, c)`, or with ones where all samples or channels share."""
    statistics = options.get("statistics", "instance")
    if statistics == "batch":
        mean, var = batch_moments(state, x_ncp, options["training"])
    else:
        mean, var = moments(x_ncp, {"instance": (2,), "layer": (1, 2)}[statistics])
    return mean[..., 0], np.sqrt(var[..., 0] + eps)


def as_(state: State, x_ncp: Array, options: Options) -> Array:
    return asr(state, x_ncp, {**options, "rescale": False})


def ar(state: State, x_ncp: Array, options: Options) -> Array:
    return asr(state, x_ncp, {**options, "standardize": False})


# --- Batch norms ------------------------------------------------------------------------------------------------------


def bn(state: State, x_ncp: Array, options: Options) -> Array:
    mean, var = batch_moments(state, x_ncp, options["training"])
    return affine(state, standardize(x_ncp, mean, var, options))


def bn_test(state: State, x_ncp: Array, options: Options) -> Array:
    return bn(state, x_ncp, {**options, "training": True})


def dsbn(state: State, x_ncp: Array, options: Options) -> Array:
    y_ncp = np.zeros_like(x_ncp, dtype=np.result_type(x_ncp, *state.values()))
    for domain, members in members_of_domains(x_ncp, options).items():
        prefix = f"domains.{domain}."
        mean, var = batch_moments(state, x_ncp[members], options["training"], prefix)
        y_ncp[members] = affine(state, standardize(x_ncp[members], mean, var, options), prefix)
    return y_ncp


def dson(state: State, x_ncp: Array, options: Options) -> Array:
    y_ncp = np.zeros_like(x_ncp, dtype=np.result_type(x_ncp, *state.values()))
    for domain, members in members_of_domains(x_ncp, options).items():
        prefix, weight = f"domains.{domain}.", state["gate"][domain]
        from_batch = batch_moments(state, x_ncp[members], options["training"], prefix)
        from_instance = moments(x_ncp[members], (2,))
        mean, var = (weight * b + (1 - weight) * i for b, i in zip(from_batch, from_instance, strict=True))
        y_ncp[members] = affine(state, standardize(x_ncp[members], mean, var, options), prefix)
    return y_ncp


def members_of_domains(x_ncp: Array, options: Options) -> dict[int, Array]:
    """Which samples belong to each domain that has any; `options["domain"]` is one number, or one for each sample."""
    domain_n = np.broadcast_to(options.get("domain", 0), len(x_ncp))
    return {int(domain): np.flatnonzero(domain_n == domain) for domain in np.unique(domain_n)}


# --- Norms of a single sample -----------------------------------------------------------------------------------------


def instance(state: State, x_ncp: Array, options: Options) -> Array:
    return affine(state, standardize(x_ncp, *moments(x_ncp, (2,)), options))


def layer(state: State, x_ncp: Array, options: Options) -> Array:
    return affine(state, standardize(x_ncp, *moments(x_ncp, (1, 2)), options))


def group(state: State, x_ncp: Array, options: Options) -> Array:
    num_groups = largest_divisor(x_ncp.shape[1], options.get("num_groups", 32))
    x_ngq = x_ncp.reshape(len(x_ncp), num_groups, -1)
    return affine(state, standardize(x_ngq, *moments(x_ngq, (2,)), options).reshape(x_ncp.shape))


def ilm(state: State, x_ncp: Array, options: Options) -> Array:
    num_samples, num_channels, _ = x_ncp.shape
    size = largest_divisor(num_channels, options.get("group_size", 16))
    key_mean, key_var = moments(x_ncp.reshape(num_samples, num_channels // size, -1), (2,), ddof=1)
    code_of_var, code_of_mean = (relu(dense(state, "encoder", z[..., 0])) for z in (key_var, key_mean))
    gain_ng = sigmoid(dense(state, "weight_decoder", code_of_var))
    bias_ng = np.tanh(dense(state, "bias_decoder", code_of_mean))
    gain_nc = np.repeat(gain_ng, size, axis=1) + state["weight"]
    bias_nc = np.repeat(bias_ng, size, axis=1) + state["bias"]
    x_stan = standardize(x_ncp, *moments(x_ncp, (2,), ddof=1), options)
    return x_stan * gain_nc[..., None] + bias_nc[..., None]


def none(state: State, x_ncp: Array, options: Options) -> Array:
    return x_ncp


# --- Mixtures ---------------------------------------------------------------------------------------------------------


def bin_(state: State, x_ncp: Array, options: Options) -> Array:
    raw = state["gate"]
    gate = np.where(raw.real < 0, 0, np.where(raw.real > 1, 1, raw))[:, None]
    of_batch = standardize(x_ncp, *batch_moments(state, x_ncp, options["training"]), options)
    of_instance = standardize(x_ncp, *moments(x_ncp, (2,)), options)
    return affine(state, gate * of_batch + (1 - gate) * of_instance)


def switchable(state: State, x_ncp: Array, options: Options) -> Array:
    """IN, LN and (where `options["batch"]`) BN; the logits come in this order."""
    mean_in, var_in, mean_ln, var_ln, mean_bn, var_bn = switchable_moments(x_ncp)
    means, variances = [mean_in, mean_ln], [var_in, var_ln]
    if options.get("batch", True):
        if not options["training"]:
            mean_bn, var_bn = batch_moments(state, x_ncp, training=False)
        means, variances = [*means, mean_bn], [*variances, var_bn]
    mean = sum(w * m for w, m in zip(softmax(state["mean_logits"]), means, strict=True))
    var = sum(w * v for w, v in zip(softmax(state["var_logits"]), variances, strict=True))
    return affine(state, standardize(x_ncp, mean, var, options))


def switchable_moments(x_ncp: Array) -> tuple[Array, ...]:
    """Mean and variance of instance, layer, batch: the last two follow from the first, whose variance is unbiased."""
    mean_in, var_in = moments(x_ncp, (2,), ddof=1)
    mean_ln, mean_bn = mean_in.mean(1, keepdims=True), mean_in.mean(0, keepdims=True)
    square = var_in + mean_in**2
    var_ln = square.mean(1, keepdims=True) - mean_ln**2
    var_bn = square.mean(0, keepdims=True) - mean_bn**2
    return mean_in, var_in, mean_ln, var_ln, mean_bn, var_bn


def switchable_in_ln(state: State, x_ncp: Array, options: Options) -> Array:
    return switchable(state, x_ncp, {**options, "batch": False})


FORWARDS: dict[str, Callable[[State, Array, Options], Array]] = {
    "asr": asr,
    "as": as_,
    "ar": ar,
    "bn": bn,
    "bn_test": bn_test,
    "dsbn": dsbn,
    "dson": dson,
    "in": instance,
    "ln": layer,
    "gn": group,
    "sn": switchable,
    "sn_in_ln": switchable_in_ln,
    "bin": bin_,
    "ilm": ilm,
    "none": none,
}


def forward(name: str, state: State, x: Array, options: Options) -> Array:
    """What the layer `name` makes of `x`.

    Args:
        name: registry key of the norm.
        state: the layer's `state_dict`, as arrays.
        x: `(n, c, ...)`, with at least one spatial axis.
        options: the layer's constructor options where they are not the default, `training` (a bool, which the layers
            that keep running statistics need), and `domain` for `dsbn` and `dson`.
    """
    x_ncp = x.reshape(*x.shape[:2], -1)
    return FORWARDS[name](state, x_ncp, options).reshape(x.shape)


def updated_buffers(name: str, state: State, x: Array, options: Options) -> dict[str, Array]:
    """The layer's running statistics after one training forward on `x`; empty for a layer that keeps none."""
    x_ncp = x.reshape(*x.shape[:2], -1)
    batches = {"": x_ncp}
    if name in ("dsbn", "dson"):
        batches = {f"domains.{d}.": x_ncp[members] for d, members in members_of_domains(x_ncp, options).items()}
    updated = {key: value for key, value in state.items() if "running_" in key or "num_batches" in key}
    momentum = options.get("momentum", MOMENTUM)
    for prefix, batch_ncp in batches.items():
        if f"{prefix}running_mean" not in state:
            continue
        if name == "sn":  # its authors average the very variance that the layer uses
            *_, mean, var = switchable_moments(batch_ncp)
        else:
            mean, var = moments(batch_ncp, (0, 2))[0], moments(batch_ncp, (0, 2), ddof=1)[1]
        for key, newest in (("running_mean", mean), ("running_var", var)):
            updated[prefix + key] = (1 - momentum) * state[prefix + key] + momentum * newest.reshape(-1)
        updated[f"{prefix}num_batches_tracked"] = state[f"{prefix}num_batches_tracked"] + 1
    return updated
