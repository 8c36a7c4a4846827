"""Images per second of an evaluation on CIFAR-10-C: WRN-40-4 on 19 corruptions at 5 severities, 950,000 images.

A share of them is timed and scaled, on generated images, since the content does not change the time.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from asrnorm.bench.device import capture, require
from asrnorm.bench.harness import Case, Row, compare
from asrnorm.bench.train import make_images
from asrnorm.data import CIFAR10C, ImageSet
from asrnorm.data.augment import to_float
from asrnorm.evaluation.score import score
from asrnorm.models import create_model
from asrnorm.models.base import NormalizedInput

ALL_IMAGES = 19 * 5 * 10_000
CLASSES = 10
_FROM_MEMORY = 20_000  # distinct images, and those timed where each batch is copied to the device


class Share(NamedTuple):
    """What is timed."""

    images: int
    batch: int = 500
    model: str = "wrn_40_4"


QUICK = Share(8, 4, "wrn_16_4")


def run(
    device: str | None = "cpu", *, quick: bool = False, images: int = 95_000, repeats: int = 5
) -> Iterator[list[Row]]:
    """Measure evaluation with BatchNorm and ASR-Norm, on a GPU in bfloat16 and on this many images; yield the rows."""
    target = require(device)
    part = Share(images) if target.type == "cuda" and not quick else QUICK
    data = make_images(min(part.images, _FROM_MEMORY), (32, 32), CLASSES)
    cases: dict[str, Case] = {}
    for norm in ("bn", "asr"):
        torch.manual_seed(0)
        network = create_model(part.model, norm=norm, num_classes=CLASSES)
        model = NormalizedInput(network, CIFAR10C.mean, CIFAR10C.std).to(target).eval()
        if target.type == "cuda":
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cases |= _cases(norm, model, data, part, target)
    work, baseline = f"CIFAR-10-C, {ALL_IMAGES:,} images", next(iter(cases))
    rows = compare(work, cases, baseline=baseline, repeats=1 if quick else repeats, warmup=1)
    for row in rows:
        timed = cases[row.path].items
        row.extra.update(seconds=ALL_IMAGES / row.per_second, times_baseline=1 / row.ratio)
        row.extra.update(scaled=timed != ALL_IMAGES, measured_images=timed, model=part.model)
    yield rows


def _cases(norm: str, model: nn.Module, data: ImageSet, part: Share, device: torch.device) -> dict[str, Case]:
    cuda = device.type == "cuda"
    turns = torch.arange(part.images, device=device) % len(data)
    images = torch.from_numpy(data.images).permute(0, 3, 1, 2).to(device)[turns]
    labels = torch.from_numpy(data.labels).to(device)[turns]
    count = partial(Counter(model, part.batch, cuda).count, images, labels)

    def from_memory() -> object:
        return score(model, data, name="made", batch_size=part.batch, precision="bfloat16" if cuda else "float32")

    way = "on the device, CUDA graph" if cuda else "on the device"
    return {
        f"{norm}, {way}": Case(count, part.images // part.batch * part.batch, device),
        f"{norm}, asrnorm.evaluation from memory": Case(from_memory, len(data), device),
    }


class Counter:
    """Counts correct predictions on images on the device, batch by batch; on a GPU as a CUDA graph."""

    def __init__(self, model: nn.Module, batch: int, cuda: bool) -> None:
        device = next(model.parameters()).device
        self._model, self._batch, self._cuda = model, batch, cuda
        self._images = torch.zeros((batch, 3, 32, 32), dtype=torch.uint8, device=device)
        self._labels = torch.zeros(batch, dtype=torch.int64, device=device)
        self._right = torch.zeros((), dtype=torch.int64, device=device)
        self._replay = capture(self._add) if cuda else self._add

    def count(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the number of correct predictions over whole batches."""
        self._right.zero_()
        for start in range(0, len(labels) - self._batch + 1, self._batch):
            self._images.copy_(images[start : start + self._batch])
            self._labels.copy_(labels[start : start + self._batch])
            self._replay()
        return self._right

    def _add(self) -> None:
        device = self._images.device.type
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=self._cuda, cache_enabled=False):
            order = torch.channels_last if self._cuda else torch.contiguous_format
            logits = self._model(to_float(self._images, exact=True).contiguous(memory_format=order))
        self._right += (logits.argmax(1) == self._labels).sum()
