"""Images per second of augmentation: Pillow on single images, a `DataLoader` of it, batched tensors, and a GPU.

Every case turns the same uint8 images in memory into floats in [0, 1]. The batched CIFAR and PACS augmentations are the
trainer's functions. On a GPU the images are on the device already, as in training; random draws are timed too, although
training makes them ahead on the CPU.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from asrnorm.bench.device import capture, on_backend, require
from asrnorm.bench.harness import Case, Row, compare, select
from asrnorm.data.augment import RSDA_OPERATIONS, apply_tuple, create_augmentation, draw_tuples, pillow, to_float

BASELINE = "pillow, one by one"

PillowStep = Callable[[Image.Image, random.Random], Image.Image]
BatchStep = Callable[[Tensor, torch.Generator], Tensor]


class Work(NamedTuple):
    """One augmentation: batch and image size of its recipe, and its Pillow and batched forms."""

    name: str
    batch: int
    side: int
    pillow: PillowStep
    batched: BatchStep


def _rsda_pillow(image: Image.Image, rng: random.Random) -> Image.Image:
    chosen = rng.choices(RSDA_OPERATIONS, k=3)
    return pillow.apply_named(image, [(operation.name, rng.choice(operation.levels)) for operation in chosen])


def _rsda_batched(images: Tensor, generator: torch.Generator) -> Tensor:
    return to_float(apply_tuple(images, *draw_tuples(images.shape[0], generator)))


def _rsda_one_tuple(images: Tensor, generator: torch.Generator) -> Tensor:
    ops, levels = draw_tuples(1, generator)
    return to_float(apply_tuple(images, ops[0], levels[0]))


def _as_in_training(images: Tensor, generator: torch.Generator, *, name: str) -> Tensor:
    return create_augmentation(name)(to_float(images), generator)


def _cifar_pillow(image: Image.Image, rng: random.Random) -> Image.Image:
    return pillow.crop_flip(image, rng.randrange(9), rng.randrange(9), rng.random() < 0.5, padding=4)


def _pacs_pillow(image: Image.Image, rng: random.Random) -> Image.Image:
    box = pillow.draw_box(rng, image.height, image.width)
    image = pillow.resize_box(image, box, (222, 222), rng.random() < 0.5)
    factors = [rng.uniform(0.6, 1.4) for _ in range(3)]
    image = pillow.jitter_colors(image, factors, rng.uniform(-0.4, 0.4), rng.sample(range(4), 4))
    return pillow.grayscale(image) if rng.random() < 0.1 else image


WORKS = (
    Work("rsda, a tuple a sample", 32, 32, _rsda_pillow, _rsda_batched),
    Work("rsda, a tuple a batch", 32, 32, _rsda_pillow, _rsda_one_tuple),
    Work("cifar crop and flip", 128, 32, _cifar_pillow, partial(_as_in_training, name="cifar")),
    Work("pacs train", 128, 227, _pacs_pillow, partial(_as_in_training, name="pacs")),
)


class PillowImages(Dataset[Tensor]):
    """Images augmented one by one: item `i` as uint8 `(3, h, w)`, its randomness from its own index."""

    def __init__(self, images_nhwc: np.ndarray, step: PillowStep) -> None:
        self.images_nhwc, self.step = images_nhwc, step

    def __len__(self) -> int:
        return len(self.images_nhwc)

    def __getitem__(self, index: int) -> Tensor:
        image = self.step(Image.fromarray(self.images_nhwc[index]), random.Random(index))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def natural_like(count: int, side: int) -> Tensor:
    """Return images of smooth colored patches with some noise, uint8 `(n, 3, side, side)`."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand((count, 3, 5, 5), generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")
    noise = torch.randn((count, 3, side, side), generator=generator) * 8
    return (smooth + noise).clamp_(0, 255).to(torch.uint8)


def run(device: str | None = "cpu", *, quick: bool = False, only: str = "", workers: int = 2) -> Iterator[list[Row]]:
    """Measure the works whose name contains a text and yield the rows of each, the baseline first.

    `cuda` adds rows for the GPU to those of the CPU; the `DataLoader` has this many worker processes.
    """
    target = require(device)
    for work in select({work.name: work for work in WORKS}, only):
        batch = max(2, work.batch // 8) if quick else work.batch
        cases = _cases(work, natural_like(batch, work.side), target, workers, quick)
        yield compare(work.name, cases, baseline=BASELINE, repeats=3 if quick else 10, warmup=1 if quick else 3)


def _cases(work: Work, images: Tensor, device: torch.device, workers: int, quick: bool) -> dict[str, Case]:
    batch = images.shape[0]
    images_nhwc = images.permute(0, 2, 3, 1).contiguous().numpy()
    generator = torch.Generator().manual_seed(0)
    one_by_one = PillowImages(images_nhwc, work.pillow)
    # The loader is timed over several batches with persistent workers, so that starting them is not counted.
    epoch = PillowImages(np.tile(images_nhwc, (2 if quick else 4, 1, 1, 1)), work.pillow)
    loader = DataLoader(epoch, batch, num_workers=workers, persistent_workers=workers > 0)
    cases = {
        BASELINE: Case(lambda: to_float(torch.stack([one_by_one[i] for i in range(batch)])), batch),
        f"pillow, DataLoader with {workers} workers": Case(lambda: [to_float(part) for part in loader], len(epoch)),
        "tensors, CPU": Case(lambda: work.batched(images, generator), batch),
    }
    if device.type == "cuda":
        cases |= _gpu_cases(work, images.to(device), device)
    return cases


def _gpu_cases(work: Work, images: Tensor, device: torch.device) -> dict[str, Case]:
    eager = torch.Generator(device).manual_seed(0)

    def replayed() -> Case:
        generator = torch.Generator(device).manual_seed(0)
        return Case(capture(lambda: work.batched(images, generator), generator), len(images), device)

    cases = {"tensors, GPU": Case(lambda: work.batched(images, eager), len(images), device)}
    if work.name.startswith(("rsda", "pacs")):  # the same without their Triton kernels
        with on_backend("reference"):
            cases["tensors, GPU, CUDA graph, no fused kernel"] = replayed()
    return cases | {"tensors, GPU, CUDA graph": replayed()}
