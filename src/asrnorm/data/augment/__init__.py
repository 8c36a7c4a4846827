"""Augmentation of whole batches of images on their device, with Pillow's arithmetic."""

from asrnorm.data.augment import augmix, filters, fourier, photometric, randconv
from asrnorm.data.augment.base import to_float as to_float
from asrnorm.data.augment.geometry import resize as resize
from asrnorm.data.augment.named import AUGMENTATIONS as AUGMENTATIONS
from asrnorm.data.augment.named import Augmentation as Augmentation
from asrnorm.data.augment.named import augment as augment
from asrnorm.data.augment.named import create_augmentation as create_augmentation
from asrnorm.data.augment.rsda import IDENTITY as IDENTITY
from asrnorm.data.augment.rsda import RSDA_OPERATIONS as RSDA_OPERATIONS
from asrnorm.data.augment.rsda import apply_named as apply_named
from asrnorm.data.augment.rsda import apply_tuple as apply_tuple
from asrnorm.data.augment.rsda import draw_tuples as draw_tuples
