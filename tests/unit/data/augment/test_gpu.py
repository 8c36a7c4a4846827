"""Every operation on a GPU gives the bits that it gives on the CPU, which the other tests hold against Pillow.

Nor does it ever wait for the host, and it can be captured in a CUDA graph.
"""

import warnings
from contextlib import contextmanager

import pytest
import torch

from asrnorm.data.augment import AUGMENTATIONS, apply_tuple, augment, create_augmentation, draw_tuples, resize, to_float
from asrnorm.data.augment.color import autocontrast, color, contrast, sharpness, shift_hue, solarize
from asrnorm.data.augment.geometry import crop_flip, draw_boxes, resize_boxes
from asrnorm.data.augment.pacs import draw_jitter, jitter_colors
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
        "crop": (lambda x, *p: crop_flip(x, *p, padding=9), offset, offset.flip(0), offset % 2 == 0),
        "resize": (lambda x, *box: resize_boxes(x, type(boxes)(*box), (222, 222)), *boxes),
        "jitter": (lambda x, *drawn: jitter_colors(x, type(jitter)(*drawn)), *jitter),
        "float": (lambda x: to_float(x, exact=True),),
    }


@pytest.mark.parametrize("name", cases(1))
def test_a_gpu_gives_the_same_bits(name):
    images = pictures(227, 227)
    function, *parameters = cases(len(images))[name]
    expected = function(images, *parameters)
    result = function(images.cuda(), *(parameter.cuda() for parameter in parameters))
    assert torch.equal(result.cpu(), expected)


# Those that compute on bytes alone; the others compute in floating point, where a GPU rounds differently.
@pytest.mark.parametrize("name", AUGMENTATIONS.names())
def test_an_augmentation_gives_the_same_images_on_a_gpu(name):
    images = pictures(64, 64)
    expected = augment(images, name, seed=1)
    result = augment(images.cuda(), name, seed=1).cpu()
    if name in ("affine", "cifar", "none", "pacs", "photometric", "pixelate"):
        assert torch.equal(result, expected)
    else:
        assert float((result.int() - expected.int()).abs().float().mean()) < 0.05


@contextmanager
def waiting_forbidden():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", [*(name for name in AUGMENTATIONS.names() if name != "none"), "resize"])
def test_an_augmentation_never_synchronizes_and_draws_again_at_every_replay_of_a_graph(name):
    change = (lambda images, _: resize(images, (60, 62))) if name == "resize" else create_augmentation(name)
    images = pictures(64, 64).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    change(images, generator)  # constants travel once
    with waiting_forbidden():
        eager = change(images, generator)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        result = change(images, generator)
    replays = []
    for _ in range(2):
        graph.replay()
        replays.append(result.clone())
    assert replays[0].shape == eager.shape
    assert torch.equal(*replays) == (name == "resize")


def test_tuples_give_the_same_bits_wherever_they_lie():
    images = pictures()
    ops, levels = draw_tuples(len(images), torch.Generator().manual_seed(0), length=6)
    expected = apply_tuple(images, ops, levels)
    assert torch.equal(apply_tuple(images.cuda(), ops.cuda(), levels.cuda()).cpu(), expected)
    assert torch.equal(apply_tuple(images.cuda(), ops, levels).cpu(), expected)


def test_a_captured_graph_replays_new_tuples():
    images, batch_ops, batch_levels = pictures(), *draw_tuples(20, torch.Generator().manual_seed(0))
    fixed, ops, levels = images.cuda(), batch_ops[0].cuda(), batch_levels[0].cuda()
    apply_tuple(fixed, ops, levels)
    with waiting_forbidden():
        apply_tuple(fixed, ops, levels)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = apply_tuple(fixed, ops, levels)
    for op, level in zip(batch_ops, batch_levels, strict=True):
        ops.copy_(op)
        levels.copy_(level)
        graph.replay()
        assert torch.equal(result.cpu(), apply_tuple(images, op, level))
