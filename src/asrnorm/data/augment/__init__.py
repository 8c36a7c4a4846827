"""Augmentation of whole batches of images on their device, with Pillow's arithmetic."""

from asrnorm.data.augment.base import to_bytes, to_float
from asrnorm.data.augment.color import (
    autocontrast,
    brightness,
    color,
    contrast,
    grayscale,
    sharpness,
    shift_channel,
    shift_hue,
    solarize,
)
from asrnorm.data.augment.geometry import resize
from asrnorm.data.augment.named import AUGMENTATIONS, Augmentation, create_augmentation
from asrnorm.data.augment.rsda import IDENTITY, RSDA_OPERATIONS, apply_named, apply_tuple, draw_tuples

__all__ = [
    "AUGMENTATIONS",
    "IDENTITY",
    "RSDA_OPERATIONS",
    "Augmentation",
    "apply_named",
    "apply_tuple",
    "autocontrast",
    "brightness",
    "color",
    "contrast",
    "create_augmentation",
    "draw_tuples",
    "grayscale",
    "resize",
    "sharpness",
    "shift_channel",
    "shift_hue",
    "solarize",
    "to_bytes",
    "to_float",
]
