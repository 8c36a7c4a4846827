"""Readers of published file formats; each returns arrays or raises an `InputError` that names the file.

No reader trusts a header: declared sizes are compared with the bytes in the file before memory is allocated.
"""

from asrnorm.data.readers.arrays import open_npy as open_npy
from asrnorm.data.readers.arrays import read_bytes as read_bytes
from asrnorm.data.readers.arrays import read_idx as read_idx
from asrnorm.data.readers.cifar import CIFAR10_CLASSES as CIFAR10_CLASSES
from asrnorm.data.readers.cifar import read_cifar_binary as read_cifar_binary
from asrnorm.data.readers.cifar import read_cifar_python as read_cifar_python
from asrnorm.data.readers.matlab import read_digit_mat as read_digit_mat
from asrnorm.data.readers.text import read_listing as read_listing
from asrnorm.data.readers.text import read_usps as read_usps
