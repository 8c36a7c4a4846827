"""A whole run in miniature: a suite, a network and two methods that train in a second, for tests of the trainer.

`entries()` are what a test puts into the registries for its own time; a process of its own calls `install()`.
"""

import json
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from asrnorm.core.config import Choice, OptimConfig, RunConfig
from asrnorm.data import SUITES, ImageSet, Part, Suite
from asrnorm.methods import METHODS, Method
from asrnorm.models import MODELS, Classifier
from asrnorm.norms import BatchNorm, NoNorm
from asrnorm.training.run_folder import RunFolder

SIZE, CLASSES = 8, 3


class ToySuite(Suite):
    """Noise with a bright patch whose place is the class."""

    name = "digits"  # whose shifts `shifted-val` takes
    mean = (0.4, 0.4, 0.4)
    std = (0.3, 0.3, 0.3)

    def __init__(self, *, root: str | None = None, count: int = 96, validation: bool = True, domains: int = 1) -> None:
        super().__init__(root=root)
        self.count, self._has_validation = count, validation
        self.sources = ("plain", *(f"plain-{number}" for number in range(1, domains)))

    classes = ("left", "middle", "right")
    image_size = (SIZE, SIZE)
    sources = ("plain",)
    target_names = ("dark", "noisy")

    def parts(self):
        roles = [("plain", "source"), ("dark", "target"), ("noisy", "target")]
        return tuple(Part(name, role, True, "made") for name, role in roles)

    def load_train(self):
        data = make_images(self.count, seed=0)
        count = len(self.sources)
        return ImageSet(data.images, data.labels, np.arange(len(data)) % count if count > 1 else None)

    def load_validation(self):
        return make_images(30, seed=1) if self._has_validation else None

    def load_source_test(self):
        return make_images(30, seed=2)

    def load_target(self, name):
        data = make_images(30, seed=3)
        images = data.images // 2 if name == "dark" else 255 - data.images
        return ImageSet(images, data.labels)


def make_images(count, seed):
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, count).astype(np.int64)
    images = draw.integers(0, 120, (count, SIZE, SIZE, 3)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2:6, 1 + 2 * label : 3 + 2 * label] += 100
    return ImageSet(images, labels)


class ToyNet(Classifier):
    """One convolution, one norm, two dense layers."""

    def __init__(self, *, norm_layer=NoNorm, num_classes: int = CLASSES, width: int = 6, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.conv = nn.Conv2d(3, width, 3, padding=1)
        self.norm = norm_layer(width)
        self.hidden = nn.Linear(width * 16, 12)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(12, num_classes)

    def features(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)

    def embed(self, maps):
        return self.dropout(F.relu(self.hidden(maps.flatten(1))))

    def classify(self, embedding):
        return self.head(embedding)


def toy_bn_net(*, norm_layer=BatchNorm, num_classes: int = CLASSES) -> ToyNet:
    """The same with BN, which `write_weights` has weights for."""
    return ToyNet(norm_layer=norm_layer, num_classes=num_classes)


def write_weights(path):
    """Write weights of `toy_bn_net` without running statistics, as if they came from another data set."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        state = toy_bn_net().state_dict()
        state["norm.weight"] = torch.randn(6)
    torch.save({name: value for name, value in state.items() if "running" not in name and "num_" not in name}, path)
    return str(path)


def pretrained_config(weights, **changes):
    """A run that starts from `write_weights` with all that can be done to a conversion before and after."""
    optim = OptimConfig(
        lr=0.05,
        weight_decay=1e-3,
        warmup_steps=2,
        norm_warmup_steps=4,
        norm_lr=3.0,
        head_lr=2.0,
        decay_networks=False,
    )
    values = {
        "model": Choice(name="toy_bn_net"),
        "norm": Choice(name="asr", args={"statistics": "batch"}),
        "weights": str(weights),
        "calibrate": 2,
        "reestimate": 3,
        "optim": optim,
    }
    return tiny_config(**{**values, **changes})


class ToyGrow(Method):
    """Appends images perturbed by the input gradient, on a schedule; each process its share, all the same pool."""

    def __init__(self, *, interval: int = 6, rounds: int = 2, count: int = 20, pause: float = 0.0) -> None:
        super().__init__()
        self.interval, self.rounds, self.count, self.pause = interval, rounds, count, pause
        self.done = 0
        self.total = torch.zeros(3)

    def is_growing(self, step):
        return step > 0 and step % self.interval == 0 and self.done < self.rounds

    def grow(self, model, pool, step):
        time.sleep(self.pause)
        rows = torch.randperm(len(pool), generator=self.generator(step, "rows"))[: self.count]
        own = rows[self.world.share(len(rows))]
        dtype = next(model.parameters()).dtype
        images = pool.images(own).to(dtype).requires_grad_()
        labels = pool.labels[own.to(pool.device)]
        model.eval()
        loss = F.cross_entropy(model(images), labels, reduction="sum")
        (slope,) = torch.autograd.grad(loss, images)
        model.train()
        self.done += 1
        everyone = self.world.gather((images + 3 * slope).detach())
        pool.append(everyone, self.world.gather(labels))
        self.total = self.total + everyone.float().mean((0, 2, 3)).cpu()
        return {"round": self.done, "added": len(everyone)}

    def state_dict(self):
        return {"done": self.done, "total": self.total}

    def load_state_dict(self, state):
        self.done, self.total = state["done"], state["total"]


class ToyNoise(Method):
    """Adds noise to the batch, drawn for all processes at once."""

    def __init__(self, *, amount: float = 0.2, bad_step: int = -1, pause: float = 0.0) -> None:
        super().__init__()
        self.amount, self.bad_step, self.pause = amount, bad_step, pause

    def loss(self, model, batch):
        time.sleep(self.pause)
        generator = self.generator(batch.step, "noise", batch.images.device)
        drawn = torch.rand((batch.global_size, 3, 1, 1), generator=generator, device=batch.images.device)
        images = batch.images + self.amount * batch.own(drawn).to(batch.images.dtype)
        if batch.step == self.bad_step:
            with torch.no_grad():
                model.get_submodule("backbone.hidden").weight.fill_(1e38)
        return F.cross_entropy(model(images), batch.labels)


def entries():
    """Registry, name, entry of each toy."""
    return (
        (SUITES, "toy", ToySuite),
        (MODELS, "toy_net", ToyNet),
        (MODELS, "toy_bn_net", toy_bn_net),
        (METHODS, "toy_grow", ToyGrow),
        (METHODS, "toy_noise", ToyNoise),
    )


def tiny_config(**changes):
    """A run of 30 steps on the toys."""
    values = {
        "recipe": "toy.erm_bn",
        "suite": Choice(name="toy"),
        "model": Choice(name="toy_net"),
        "norm": Choice(name="bn"),
        "method": Choice(name="erm"),
        "optim": OptimConfig(lr=0.05, weight_decay=1e-4, schedule="cosine"),
        "steps": 30,
        "batch_size": 16,
        "device": "cpu",
        "checkpoint_every": 5,
        "log_every": 2,
        "lambda_every": 10,
        "evaluate_batch": 16,
    }
    return RunConfig(**{**values, **changes})


def small_method(name):
    """A method of the registry with few and short phases, whatever its options are called."""
    small = {"interval": 7, "rounds": 1, "ascent_steps": 2, "candidates": 4, "population": 4, "generations": 2}
    small |= {"wae_epochs": 1, "search_images": 20, "search_size": 20}
    small |= {"phase_steps": 3}
    small |= {"length": 4}  # a square that leaves something of an image of 8x8
    known = METHODS.options(name)
    return Choice(name=name, args={option: value for option, value in small.items() if option in known})


def small_run(name):
    """The method and the suite of a run of a method of the registry: one that needs domains has two."""
    suite = Choice(name="toy", args={"domains": 2} if name == "metareg" else {})
    return {"method": small_method(name), "suite": suite}


def dson_config(**changes):
    """A run on three sources, each with a branch of its own."""
    norm = Choice(name="dson", args={"num_domains": 3})
    return tiny_config(norm=norm, suite=Choice(name="toy", args={"domains": 3}), **changes)


def install():
    """Register the toys for the rest of this process."""
    for registry, name, entry in entries():
        registry.register(name)(entry)


def kept_pool():
    """Within it, runs that end keep their grown images: without its result, such a run is one that was killed."""
    return mock.patch.object(RunFolder, "drop_pool")


def model_bytes(folder):
    return (Path(folder) / "model.safetensors").read_bytes()


def logged_losses(folder):
    rows = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def logged_steps(folder):
    return [json.loads(line)["step"] for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
