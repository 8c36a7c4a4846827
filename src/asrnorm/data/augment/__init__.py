"""Augmentation of whole batches of uint8 images on their device, from a given generator, with Pillow's arithmetic."""

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
from asrnorm.data.augment.compose import (
    CIFAR_EVAL,
    CIFAR_TRAIN,
    DIGITS_EVAL,
    DIGITS_TRAIN,
    PACS_EVAL,
    PACS_TRAIN,
    Augmentation,
    Compose,
    Resize,
    ToFloat,
    to_float,
)
from asrnorm.data.augment.geometry import random_crop_flip, resize
from asrnorm.data.augment.rsda import IDENTITY, RSDA_OPERATIONS, apply_named, apply_tuple, draw_tuples

__all__ = [
    "CIFAR_EVAL",
    "CIFAR_TRAIN",
    "DIGITS_EVAL",
    "DIGITS_TRAIN",
    "IDENTITY",
    "PACS_EVAL",
    "PACS_TRAIN",
    "RSDA_OPERATIONS",
    "Augmentation",
    "Compose",
    "Resize",
    "ToFloat",
    "apply_named",
    "apply_tuple",
    "autocontrast",
    "brightness",
    "color",
    "contrast",
    "draw_tuples",
    "grayscale",
    "random_crop_flip",
    "resize",
    "sharpness",
    "shift_channel",
    "shift_hue",
    "solarize",
    "to_float",
]
