"""Every operation on a GPU gives the bits that it gives on the CPU, which the other tests hold against Pillow."""

import pytest
import torch

from asrnorm.data.augment import autocontrast, color, contrast, sharpness, shift_hue, solarize, to_float
from asrnorm.data.augment.crop import shift_flip
from asrnorm.data.augment.jitter import draw_jitter, jitter_colors
from asrnorm.data.augment.random_box import draw_boxes
from asrnorm.data.augment.resample import resize_boxes
from helpers.pictures import pictures

pytestmark = pytest.mark.gpu


def cases(count):
    seeded = torch.Generator().manual_seed(0)
    wide = torch.rand(count, generator=seeded, dtype=torch.float64)
    boxes = draw_boxes(count, 227, 227, seeded)
    jitter = draw_jitter(count, seeded)
    offset = torch.arange(count)
    return {
        "autocontrast": (autocontrast, wide * 10),
        "color": (color, wide * 2),
        "contrast": (contrast, wide * 2),
        "sharpness": (sharpness, wide * 2),
        "solarize": (solarize, wide * 255),
        "hue": (shift_hue, wide - 0.5),
        "crop": (lambda x, *p: shift_flip(x, *p, padding=9), offset, offset.flip(0), offset % 2 == 0),
        "resize": (lambda x, *box: resize_boxes(x, type(boxes)(*box), (222, 222)), *boxes),
        "jitter": (lambda x, *drawn: jitter_colors(x, type(jitter)(*drawn)), *jitter),
        "float": (lambda x: to_float(x, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),),
    }


@pytest.mark.parametrize("name", cases(1))
def test_a_gpu_gives_the_same_bits(name):
    images = pictures(227, 227)
    function, *parameters = cases(len(images))[name]
    expected = function(images, *parameters)
    result = function(images.cuda(), *(parameter.cuda() for parameter in parameters))
    assert torch.equal(result.cpu(), expected)
