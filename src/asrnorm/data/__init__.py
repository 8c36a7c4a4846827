"""Suites of domains, the files that they are read from, and what is done to their images.

The line that imports a suite registers it. Nothing here imports torch, so that `asrnorm data list` starts at once.
"""

from asrnorm.data.image_set import FileSet as FileSet
from asrnorm.data.image_set import ImageSet as ImageSet
from asrnorm.data.suites.base import SUITES as SUITES
from asrnorm.data.suites.base import Part as Part
from asrnorm.data.suites.base import Suite as Suite
from asrnorm.data.suites.base import create_suite as create_suite
from asrnorm.data.suites.base import list_suites as list_suites
from asrnorm.data.suites.cifar10c import CIFAR10C as CIFAR10C
from asrnorm.data.suites.digits import Digits as Digits
from asrnorm.data.suites.digits_mini import DigitsMini as DigitsMini
from asrnorm.data.suites.folder import ImageFolder as ImageFolder
from asrnorm.data.suites.pacs import PACS as PACS
