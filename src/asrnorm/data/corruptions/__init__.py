"""The 19 corruptions of CIFAR-10-C and ImageNet-C at five severities, and the files of CIFAR-10-C.

Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019.
"""

from asrnorm.data.corruptions import blur, digital, weather
from asrnorm.data.corruptions.base import CORRUPTIONS, corrupt, list_corruptions
from asrnorm.data.corruptions.folder import corrupt_folder
from asrnorm.data.corruptions.generation import GeneratedFile, generate_cifar10c, generate_corrupted
from asrnorm.data.corruptions.weather import frost_pictures

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
