"""Memory: a GPU without enough, simulated, is one line with the batch that fits; a finished run holds none."""

import gc

import pytest
import torch
from torch import nn

from asrnorm.core.errors import DeviceMemoryError
from asrnorm.data import ImageSet, Suite
from asrnorm.data.pool import Pool
from asrnorm.evaluation import score
from asrnorm.methods import METHODS
from asrnorm.models import Classifier
from asrnorm.norms import NORMS, BatchNorm
from asrnorm.training import run
from asrnorm.training.trainer import Trainer
from helpers.tiny_run import (
    Choice,
    ToyNet,
    make_images,
    model_bytes,
    pretrained_config,
    small_run,
    tiny_config,
    write_weights,
)


def limit(monkeypatch, most, from_call=0):
    """Let networks fail for more than `most` images at once, from some call on."""
    forward, calls = ToyNet.features, []

    def limited(network, images):
        calls.append(len(images))
        if len(images) > most and len(calls) > from_call:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(network, images)

    monkeypatch.setattr(ToyNet, "features", limited)
    return calls


@pytest.mark.parametrize("call", [10, 11, 12])  # in a step, or for the accuracy of a row of the log
def test_training_names_the_batch_that_fits_and_resumes_from_the_checkpoint(tmp_path, monkeypatch, call):
    config = tiny_config(steps=12, checkpoint_every=4)
    run(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        limit(patch, 5, from_call=call)
        with pytest.raises(DeviceMemoryError, match=r"batch_size=16; 4 fit: set batch_size=4"):
            run(config, tmp_path / "a")
    assert (tmp_path / "a" / "checkpoints" / "last.pt").exists()
    run(config, tmp_path / "a")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "whole")


def test_evaluation_halves_its_batch(monkeypatch):
    network, data = ToyNet(norm_layer=BatchNorm).eval(), make_images(30, seed=2)
    expected = score(network, data, name="plain", batch_size=30)
    calls = limit(monkeypatch, 8)
    found = score(network, data, name="plain", batch_size=30)
    assert (found.accuracy, found.num_samples) == (expected.accuracy, 30)
    assert max(calls[2:]) <= 8


def test_a_batch_that_is_part_of_the_number_is_not_halved(monkeypatch):
    network: Classifier = ToyNet(norm_layer=NORMS["bn_test"]).eval()
    limit(monkeypatch, 8)
    with pytest.raises(DeviceMemoryError, match="evaluate_batch=7"):
        score(network, make_images(30, seed=2), name="plain", batch_size=30)


def test_a_grow_phase_without_memory_is_one_line_and_resumes_from_the_checkpoint(tmp_path, monkeypatch):
    config = tiny_config(steps=12, checkpoint_every=4, method=Choice(name="toy_grow"))
    run(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd, "grad", refuse)
        with pytest.raises(DeviceMemoryError) as caught:
            run(config, tmp_path / "a")
    assert "\n" not in str(caught.value)
    assert (tmp_path / "a" / "checkpoints" / "last.pt").exists()
    run(config, tmp_path / "a")
    assert model_bytes(tmp_path / "a") == model_bytes(tmp_path / "whole")


def refuse(*arguments, **options):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.mark.parametrize("method", METHODS.names())
def test_nothing_of_a_run_waits_for_a_garbage_collection(tmp_path, method):
    options = {"steps": 8, "average": Choice(name="swad"), "evaluate_every": 4, **small_run(method)}
    config = pretrained_config(write_weights(tmp_path / "weights.pt"), **options)
    run(config, tmp_path / "first")  # modules that torch imports here keep its frames in cycles
    before = find_parts()
    gc.disable()
    try:
        run(config, tmp_path / "second")
        assert not find_parts() - before
    finally:
        gc.enable()


def find_parts():
    kinds = nn.Module | Suite | ImageSet | Pool | Trainer
    return {id(value) for value in gc.get_objects() if issubclass(type(value), kinds)}
