"""A finished run without a training: its folder, and what `load_run` would make of it."""

import dataclasses
import sys
from types import SimpleNamespace

import torch
from torch import nn

from asrnorm.core.config import Choice, OptimConfig, RunConfig, dump_config
from asrnorm.models import Classifier
from asrnorm.training.run import LoadedRun


class QuarterNet(Classifier):
    """Takes the brightest quarter for the class, which is right for the toy images; BN does not change that."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.num_classes = 4
        self.norm = norm(3)

    def features(self, images):
        return self.norm(nn.functional.adaptive_avg_pool2d(images, 2))

    def embed(self, maps):
        return maps.mean(1).flatten(1)

    def classify(self, embedding):
        return 20 * embedding


def make_config(**changes):
    config = RunConfig(
        recipe="toy.erm_bn",
        suite=Choice(name="toy"),
        model=Choice(name="quarters"),
        norm=Choice(name="bn"),
        method=Choice(name="erm"),
        optim=OptimConfig(),
        steps=1,
        batch_size=4,
    )
    return dataclasses.replace(config, **changes)


def install_run(monkeypatch, folder, suite, **changes):
    """Write the folder of a finished run, and let `asrnorm.training.load_run` return it."""
    config, model = make_config(**changes), QuarterNet().eval()
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(config))
    (folder / "model.safetensors").touch()
    loaded = LoadedRun(config, model, suite, torch.device("cpu"), suite.classes)
    monkeypatch.setitem(sys.modules, "asrnorm.training", SimpleNamespace(load_run=lambda path, device="auto": loaded))
    return loaded
