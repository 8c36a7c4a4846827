from dataclasses import replace

import pytest
import torch

from asrnorm.bench import train as loop
from asrnorm.bench.train import find_images, make_images, time_loop
from asrnorm.core.config import Choice
from asrnorm.norms import ASRNorm2d
from asrnorm.recipes import recipe

CPU = torch.device("cpu")


@pytest.fixture
def small():
    net = Choice(name="digits_convnet", args={"channels": [4, 4], "hidden": 8})
    return replace(recipe("digits.erm_asr"), model=net, steps=4, batch_size=2, log_every=2)


def test_the_rows_of_the_log_are_the_marks(small):
    marks = time_loop(small, make_images(8, (32, 32), 10), CPU)
    assert [mark.step for mark in marks] == [0, 2, 4, 4]
    assert [mark.seconds for mark in marks] == sorted(mark.seconds for mark in marks)


def test_an_eager_loop_runs_on_the_reference(small, monkeypatch):
    seen = []
    whole = loop.Trainer.update
    monkeypatch.delenv("ASRNORM_BACKEND", raising=False)

    def update(self, batch):
        seen.append(loop.on_backend.__globals__["os"].environ.get("ASRNORM_BACKEND"))
        return whole(self, batch)

    monkeypatch.setattr(loop.Trainer, "update", update)
    time_loop(replace(small, steps=1), make_images(4, (32, 32), 10), CPU, captured=False)
    time_loop(replace(small, steps=1), make_images(4, (32, 32), 10), CPU, captured=True)
    assert seen == ["reference", None]


def test_images_are_made_where_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    data, kind = find_images(recipe("pacs.rsc_asr", source="photo"), 3, made=False)
    assert (kind, len(data), data.image_size) == ("made", 3, (227, 227))
    assert data.labels.max() < 7


def test_without_pretrained_weights_the_same_layers_are_converted(monkeypatch, tmp_path):
    monkeypatch.setenv("ASRNORM_DATA", str(tmp_path))
    model = loop._model(recipe("pacs.rsc_asr", source="photo"), CPU)
    found = [module for module in model.modules() if isinstance(module, ASRNorm2d)]
    assert len(found) == 10
    assert all(module.gated_rescale for module in found)
