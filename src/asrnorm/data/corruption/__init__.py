"""The 19 corruptions of CIFAR-10-C and ImageNet-C at five severities, and the files of CIFAR-10-C.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from asrnorm.data.corruption import blur, color, digital, elastic, frost, glass, motion, noise, spatter, weather, zoom
from asrnorm.data.corruption.apply import corrupt, list_corruptions
from asrnorm.data.corruption.base import CORRUPTIONS
from asrnorm.data.corruption.folder import corrupt_folder
from asrnorm.data.corruption.frost import frost_pictures
from asrnorm.data.corruption.generation import GeneratedFile, generate_cifar10c, generate_corrupted

__all__ = [
    "CORRUPTIONS",
    "GeneratedFile",
    "corrupt",
    "corrupt_folder",
    "frost_pictures",
    "generate_cifar10c",
    "generate_corrupted",
    "list_corruptions",
]
