"""TTT at test time: the network learns the angles of each test image before it classifies it.

Sun et al., *Test-Time Training with Self-Supervision for Generalization under Distribution Shifts*, ICML 2020. Scores
made this way train on test images, unlike all others of this package.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from asrnorm.core.distributed import World
from asrnorm.core.errors import InputError
from asrnorm.data import FileSet, ImageSet
from asrnorm.data.augment.geometry import crop_flip
from asrnorm.evaluation.inference import Inference
from asrnorm.methods import keyed_generator
from asrnorm.models.rotation_resnet import ANGLES, find_rotation, rotation_logits

Adaptation = Literal["none", "slow", "online"]
Weights = dict[str, Tensor]

# Steps for an image: ten from the trained weights, or one from those that the image before it left.
STEPS = {"slow": 10, "online": 1}
COPIES = 32  # of an image in a step, each cropped, mirrored and turned anew
LEARNING_RATE = 0.001
_PADDING = 4
_TOGETHER = 64  # images, or streams of images, that are adapted side by side


class _Branch(nn.Module):
    """The rotation branch as the `forward` of a module, which `functional_call` needs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return rotation_logits(self.model, images)


class Learner:
    """Takes steps on the angles of several images at once, each with weights of its own, by `torch.func.vmap`.

    The model is in evaluation mode and has a rotation branch; its own weights stay as they are.
    """

    def __init__(self, model: nn.Module) -> None:
        network = find_rotation(model)
        if network is None:
            raise InputError(
                f"adapt needs a network with a rotation branch, model=resnet26_ttt, and {type(model).__name__} has none"
            )
        inside = {id(p) for part in network.adapted for p in network.get_submodule(part).parameters()}
        self._start = {name: p.detach() for name, p in model.named_parameters() if id(p) in inside}
        branch = _Branch(model)

        def loss(weights: Weights, images: Tensor, angle: Tensor) -> Tensor:
            named = {f"model.{name}": value for name, value in weights.items()}
            return F.cross_entropy(functional_call(branch, named, (images,)), angle)

        def answer(weights: Weights, image: Tensor) -> Tensor:
            logits: Tensor = functional_call(model, weights, (image[None],))
            return logits[0]

        self._slope, self._answer = vmap(grad(loss)), vmap(answer)

    def start(self, count: int) -> Weights:
        """Return the trained weights of the adapted part for so many images."""
        return {name: value.expand(count, *value.shape) for name, value in self._start.items()}

    def step(self, weights: Weights, copies: Tensor, angle: Tensor) -> Weights:
        """Return the weights after a step on copies `(n, k, 3, h, w)` turned by `angle` `(n, k)`."""
        slope = self._slope(weights, copies, angle)
        return {name: value - LEARNING_RATE * slope[name] for name, value in weights.items()}

    @torch.no_grad()
    def classify(self, weights: Weights, images: Tensor) -> Tensor:
        """Return the logits of images, each by its own weights."""
        logits: Tensor = self._answer(weights, images)
        return logits


def draw_copies(count: int, seed: int, name: str, step: int) -> dict[str, Tensor]:
    """Draw offsets, flips and angles of the copies of all images of a domain, small tensors `(count, COPIES)`."""
    generator = keyed_generator(seed, "ttt", name, step)
    shape = (count, COPIES)
    top, left = torch.randint(2 * _PADDING + 1, (2, *shape), generator=generator, dtype=torch.uint8)
    angle = torch.randint(ANGLES, shape, generator=generator, dtype=torch.uint8)
    return {"top": top, "left": left, "angle": angle, "flip": torch.rand(shape, generator=generator) < 0.5}


def make_copies(images: Tensor, drawn: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the copies `(n, k, 3, h, w)` of images as drawn for them, cropped with black borders, and their angles."""
    n, k = drawn["angle"].shape
    flat = {name: value.to(images.device).flatten() for name, value in drawn.items()}
    angle = flat["angle"].long()
    copies = images[:, None].expand(n, k, *images.shape[1:]).flatten(0, 1)
    copies = crop_flip(copies, flat["top"].long(), flat["left"].long(), flat["flip"], _PADDING, black=True)
    turned = torch.stack([copies.rot90(count, (2, 3)) for count in range(ANGLES)])
    chosen = turned[angle, torch.arange(n * k, device=images.device)]
    return chosen.view(n, k, *images.shape[1:]), angle.view(n, k)


def adapt_domains(
    inference: Inference,
    domains: Sequence[tuple[str, ImageSet | FileSet]],
    adaptation: Literal["slow", "online"],
    *,
    seed: int,
    world: World,
) -> Iterator[tuple[int, Tensor, NDArray[np.int64]]]:
    """Yield the number of a domain with logits and labels of some of its images, until all are classified.

    `slow` adapts to each image from the trained weights; processes share the images. `online` carries the weights from
    image to image of a domain, in the order of the set; processes share the domains.
    """
    learner = Learner(inference.model)
    if adaptation == "slow":
        for number, (name, data) in enumerate(domains):
            drawn = [draw_copies(len(data), seed, name, step) for step in range(STEPS["slow"])]
            own = range(len(data))[world.share(len(data))]
            for first in range(own.start, own.stop, _TOGETHER):
                rows = slice(first, min(first + _TOGETHER, own.stop))
                images, weights = inference.to_input(data.read_rows(rows)), learner.start(rows.stop - rows.start)
                for one in drawn:
                    weights = learner.step(weights, *make_copies(images, {k: v[rows] for k, v in one.items()}))
                yield number, learner.classify(weights, images), data.labels[rows]
        return
    lengths = sorted({len(data) for _, data in domains})
    for length in lengths:  # streams of one length go side by side
        numbers = [number for number, (_, data) in enumerate(domains) if len(data) == length]
        numbers = numbers[world.share(len(numbers))]
        for first in range(0, len(numbers), _TOGETHER):
            yield from _adapt_streams(inference, learner, domains, numbers[first : first + _TOGETHER], seed)


def _adapt_streams(
    inference: Inference,
    learner: Learner,
    domains: Sequence[tuple[str, ImageSet | FileSet]],
    numbers: Sequence[int],
    seed: int,
) -> Iterator[tuple[int, Tensor, NDArray[np.int64]]]:
    streams = [domains[number] for number in numbers]
    drawn = [draw_copies(len(data), seed, name, 0) for name, data in streams]
    weights = learner.start(len(streams))
    for row in range(len(streams[0][1])):
        images = torch.cat([inference.to_input(data.read_rows(slice(row, row + 1))) for _, data in streams])
        now = {key: torch.stack([one[key][row] for one in drawn]) for key in drawn[0]}
        weights = learner.step(weights, *make_copies(images, now))
        for number, logits in zip(numbers, learner.classify(weights, images), strict=True):
            yield number, logits[None], domains[number][1].labels[row : row + 1]
