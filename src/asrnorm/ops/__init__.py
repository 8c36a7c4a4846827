"""Functions on tensors: the mathematics of the norm layers, without modules or parameters."""

from asrnorm.ops import convolve, dispatch, fixed, pool, reference, switch

ACTIVATIONS = reference.ACTIVATIONS
Dense = reference.Dense
RescaleNets = reference.RescaleNets
StandardizeNets = reference.StandardizeNets
asr_norm = dispatch.asr_norm
channel_moments = reference.channel_moments
channel_stats = reference.channel_stats
compute_dtype = reference.compute_dtype
convolve_small = convolve.convolve_small
fixed_norm = fixed.fixed_norm
full_precision = reference.full_precision
learned_rescaling = reference.learned_rescaling
learned_standardization = reference.learned_standardization
max_pool_2x2 = pool.max_pool_2x2
per_channel = reference.per_channel
pool_moments = reference.pool_moments
sample_moments = switch.sample_moments
standardize_rescale = dispatch.standardize_rescale
switch_norm = switch.switch_norm
switched_vectors = switch.switched_vectors
takes_kernels = dispatch.takes_kernels
use_backend = dispatch.use_backend
with_moments = dispatch.with_moments
