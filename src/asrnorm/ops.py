"""The functional interface: the mathematics of the norm layers as functions on tensors, and `use_backend`."""

from asrnorm.norms.dispatch import takes_kernels as takes_kernels
from asrnorm.norms.dispatch import use_backend as use_backend
from asrnorm.norms.functional import asr_norm as asr_norm
from asrnorm.norms.functional import standardize_rescale as standardize_rescale
from asrnorm.norms.functional import switch_norm as switch_norm
from asrnorm.norms.functional import with_moments as with_moments
from asrnorm.norms.reference import ACTIVATIONS as ACTIVATIONS
from asrnorm.norms.reference import Dense as Dense
from asrnorm.norms.reference import RescaleNets as RescaleNets
from asrnorm.norms.reference import StandardizeNets as StandardizeNets
from asrnorm.norms.reference import channel_moments as channel_moments
from asrnorm.norms.reference import channel_stats as channel_stats
from asrnorm.norms.reference import compute_dtype as compute_dtype
from asrnorm.norms.reference import full_precision as full_precision
from asrnorm.norms.reference import learned_rescaling as learned_rescaling
from asrnorm.norms.reference import learned_standardization as learned_standardization
from asrnorm.norms.reference import per_channel as per_channel
from asrnorm.norms.reference import pool_moments as pool_moments
from asrnorm.norms.reference import sample_moments as sample_moments
from asrnorm.norms.reference import switched_vectors as switched_vectors
