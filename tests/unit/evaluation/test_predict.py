"""Single images: what `predict` says of a file is what `score` counts."""

import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from asrnorm.core.errors import InputError
from asrnorm.data import ImageSet
from asrnorm.evaluation import predict, predict_files, score
from asrnorm.evaluation.predict import Prediction
from helpers.toy_suite import make_images

CLASSES = ("a", "b", "c", "d")


@pytest.fixture
def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4), nn.Dropout())


def save(folder, images):
    paths = [folder / f"{row}.png" for row in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def test_class_and_probability_of_each_image(net):
    images = make_images(6).images
    found = predict(net, images, CLASSES)
    with torch.no_grad():
        probability = net[1](torch.from_numpy(images).permute(0, 3, 1, 2).flatten(1) / 255).softmax(1)
    assert [prediction.label for prediction in found] == [CLASSES[k] for k in probability.argmax(1)]
    assert [prediction.probability for prediction in found] == pytest.approx(probability.amax(1).tolist(), abs=1e-6)
    assert net.training


def test_files_are_read_at_the_size_of_the_run_and_keep_their_order(net, tmp_path):
    data = make_images(7, size=(10, 13))
    paths = save(tmp_path, data.images)
    found = list(predict_files(net, paths, CLASSES, image_size=(8, 8), batch_size=3))
    assert [path for path, _ in found] == paths
    small = np.stack([np.asarray(Image.open(path).resize((8, 8), Image.Resampling.BILINEAR)) for path in paths])
    for (_, prediction), wanted in zip(found, predict(net, small, CLASSES), strict=True):
        assert prediction.label == wanted.label
        assert prediction.probability == pytest.approx(wanted.probability, abs=1e-6)


def test_predictions_and_score_agree(net, tmp_path):
    data = make_images(20)
    labels = [
        prediction.label
        for _, prediction in predict_files(net, save(tmp_path, data.images), CLASSES, image_size=(8, 8))
    ]
    right = np.mean([CLASSES.index(label) == wanted for label, wanted in zip(labels, data.labels, strict=True)])
    assert score(net, ImageSet(data.images, data.labels), name="toy").accuracy == right


def test_a_file_that_is_no_image_comes_with_its_error_and_the_rest_go_on(net, tmp_path):
    first, second, third = save(tmp_path, make_images(3).images)
    second.write_bytes(b"no image")
    third.unlink()
    found = [result for _, result in predict_files(net, [first, second, third, first], CLASSES, image_size=(8, 8))]
    assert isinstance(found[0], Prediction)
    assert "cannot be read as an image" in str(found[1])
    assert "no such file" in str(found[2])
    assert found[3] == found[0]


def test_only_bad_files_and_no_files_at_all(net, tmp_path):
    assert [type(result) for _, result in predict_files(net, [tmp_path / "x"], CLASSES, image_size=(8, 8))] == [
        InputError
    ]
    assert list(predict_files(net, [], CLASSES, image_size=(8, 8))) == []
    assert predict(net, np.zeros((0, 8, 8, 3), np.uint8), CLASSES) == []


def test_what_cannot_be_predicted_is_one_line(net):
    images = make_images(2).images
    with pytest.raises(InputError, match=r"\(2, 4\) .*\b3\b"):
        predict(net, images, CLASSES[:3])
    net[1].bias.data.fill_(math.nan)
    with pytest.raises(InputError, match="image 0"):
        predict(net, images, CLASSES)
