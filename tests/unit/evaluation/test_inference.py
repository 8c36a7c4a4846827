"""How images reach a model."""

import numpy as np
import pytest
import torch
from torch import nn

from asrnorm.core.errors import InputError, UnknownNameError
from asrnorm.data.augment import resize, to_float
from asrnorm.evaluation.inference import Inference
from helpers.toy_suite import make_images


class Probe(nn.Module):
    """Keeps what it was called with."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, images):
        self.seen = images
        return self.linear(images.mean((2, 3)))


def test_pixels_become_float_in_the_unit_range_in_their_places():
    images = make_images(5).images
    seen = Inference.of(Probe()).to_input(images)
    assert seen.dtype == torch.float32
    assert seen.shape == (5, 3, 8, 8)
    np.testing.assert_array_equal(seen.permute(0, 2, 3, 1).numpy(), images.astype(np.float32) / np.float32(255))


def test_resizing_is_pillow_s_on_uint8():
    images = make_images(5).images
    wanted = to_float(resize(torch.from_numpy(images).permute(0, 3, 1, 2), (6, 7)))
    assert torch.equal(Inference.of(Probe(), size=(6, 7)).to_input(images), wanted)


def test_read_only_and_strided_images_are_taken():
    images = make_images(6).images
    images.setflags(write=False)
    for rows in (slice(None), slice(1, None, 2)):
        seen = Inference.of(Probe()).to_input(images[rows])
        np.testing.assert_array_equal((255 * seen).round().byte().permute(0, 2, 3, 1).numpy(), images[rows])


def test_float64_models_get_float64():
    inference = Inference.of(Probe().double(), precision="float64")
    assert inference.to_input(make_images(2).images).dtype == torch.float64
    assert inference.logits(inference.to_input(make_images(2).images)).dtype == torch.float64


def test_bfloat16_computes_under_autocast_from_float32():
    inference = Inference.of(Probe(), precision="bfloat16")
    images = inference.to_input(make_images(2).images)
    assert images.dtype == torch.float32
    assert inference.logits(images).dtype == torch.bfloat16


def test_tf32_is_for_models_in_float32():
    probe, images = Probe(), torch.rand(2, 3, 8, 8)
    assert torch.equal(Inference.of(probe, precision="tf32").logits(images), Inference.of(probe).logits(images))
    with pytest.raises(InputError, match=r"float64 model in tf32; convert it: model\.to\(torch\.float32\)"):
        Inference.of(Probe().double(), precision="tf32")


def test_a_precision_that_is_not_the_model_s_is_refused():
    with pytest.raises(InputError, match=r"float32 model in float64; convert it: model\.to\(torch\.float64\)"):
        Inference.of(Probe(), precision="float64")
    with pytest.raises(UnknownNameError, match="did you mean 'float32'"):
        Inference.of(Probe(), precision="float23")


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (lambda x: {"logits": x.mean((2, 3))}, "Answer returns dict, not logits"),
        (lambda x: (x.mean((2, 3)), None), "Answer returns tuple, not logits"),
        (lambda x: x.mean((2, 3), keepdim=True), r"Answer returns shape \(2, 3, 1, 1\), not logits"),
    ],
)
def test_anything_but_logits_is_refused_in_one_line(answer, line):
    class Answer(nn.Module):
        def forward(self, x):
            return answer(x)

    inference = Inference.of(Answer())
    with pytest.raises(InputError, match=line):
        inference.logits(torch.rand(2, 3, 4, 4))


def test_a_model_without_parameters_is_taken_to_be_on_the_cpu():
    assert Inference.of(nn.Flatten()).device.type == "cpu"


@pytest.mark.parametrize(
    ("shape", "line"), [((8, 8, 3), r"add the batch axis with images\[None\]"), ((2, 3, 8, 8), r"\(2, 3, 8, 8\)$")]
)
def test_images_of_another_shape_are_refused_in_one_line(shape, line):
    with pytest.raises(InputError, match=r"expected images \(n, h, w, 3\), got shape .*" + line):
        Inference.of(Probe()).to_input(np.zeros(shape, np.uint8))
