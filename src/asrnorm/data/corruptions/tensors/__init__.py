"""The corruptions as tensor operations on whole batches, on any device; the NumPy ones are the reference.

JPEG compression and spatter have no such form: `corrupt` computes them on the CPU.
"""

from asrnorm.data.corruptions.tensors import blur, digital, weather
from asrnorm.data.corruptions.tensors.apply import Corrupt, corrupt_batch, corrupt_tensors
from asrnorm.data.corruptions.tensors.base import TENSOR_CORRUPTIONS

__all__ = ["TENSOR_CORRUPTIONS", "Corrupt", "corrupt_batch", "corrupt_tensors"]
