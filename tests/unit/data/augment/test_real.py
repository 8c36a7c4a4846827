"""The real images of the suites, where they lie under ASRNORM_DATA."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL.Image import Resampling

from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple, draw_tuples, pillow, resize
from asrnorm.data.augment.geometry import draw_boxes, resize_boxes
from asrnorm.data.augment.pacs import draw_jitter, jitter_colors
from helpers.pictures import difference, one_by_one, to_batch

pytestmark = pytest.mark.data


def found(*parts: str) -> Path:
    if "ASRNORM_DATA" not in os.environ:
        pytest.skip("ASRNORM_DATA is not set")
    path = Path(os.environ["ASRNORM_DATA"], *parts)
    if not path.exists():
        pytest.skip(f"{'/'.join(parts)} is not under ASRNORM_DATA")
    return path


@pytest.fixture(scope="module")
def paintings():
    files = sorted(found("PACS").glob("art_painting/*/*.jpg"))[::80][:24]
    return to_batch([np.asarray(Image.open(file).convert("RGB")) for file in files])


def test_cifar_images_with_a_tuple_each_equal_pillow():
    file = found("cifar-10-batches-bin", "test_batch.bin")
    records = np.fromfile(file, np.uint8, count=600 * 3073).reshape(600, 3073)
    images = torch.from_numpy(records[:, 1:].reshape(600, 3, 32, 32).copy())
    ops, levels = draw_tuples(600, torch.Generator().manual_seed(0))

    def expected(image, op, level):
        chosen = [(RSDA_OPERATIONS[o], i) for o, i in zip(op, level, strict=True)]
        return pillow.apply_named(image, [(operation.name, operation.levels[i]) for operation, i in chosen])

    assert (
        difference(apply_tuple(images, ops, levels), one_by_one(images, expected, ops.tolist(), levels.tolist())) == 0
    )


def test_pacs_images_through_crop_and_jitter_equal_pillow(paintings):
    generator = torch.Generator().manual_seed(0)
    boxes = draw_boxes(len(paintings), *paintings.shape[2:], generator)
    drawn = draw_jitter(len(paintings), generator)

    def expected(image, box, *jitter):
        return pillow.jitter_colors(pillow.resize_box(image, box, (222, 222), False), *jitter)

    parameters = (torch.stack(boxes, 1).tolist(), *(values.tolist() for values in drawn))
    result = jitter_colors(resize_boxes(paintings, boxes, (222, 222)), drawn)
    assert difference(result, one_by_one(paintings, expected, *parameters)) == 0


def test_pacs_evaluation_equals_pillow_in_one_call(paintings):
    expected = one_by_one(paintings, lambda image: image.resize((222, 222), Resampling.BILINEAR))
    assert difference(resize(paintings, (222, 222)), expected) == 0
