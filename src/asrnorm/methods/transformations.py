"""Training on tuples of image transformations, and a pool of tuples that a search extends by the worst it can find.

Volpi and Murino, *Addressing Model Vulnerability to Distributional Shifts over Image Transformation Sets*, ICCV 2019,
algorithm 3. The searches are in `rsda.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from asrnorm.core.cuda_graph import capture
from asrnorm.core.errors import InputError
from asrnorm.core.frozen_eval import evaluating
from asrnorm.data.augment import IDENTITY, apply_tuple
from asrnorm.data.augment.base import byte_values, find_fused, to_bytes, to_float
from asrnorm.data.augment.rsda import level_values
from asrnorm.methods.base import Batch, Images, Method
from asrnorm.models import Classifier

CountWrong = Callable[[Tensor, Tensor], Tensor]
"""Takes tuples, `ops` and `levels` of `(count, length)`; returns how many images the model misses under each."""


class Found(NamedTuple):
    """What a search returns: one tuple, `(length,)` each, and the number of images that the model misses under it."""

    ops: Tensor
    levels: Tensor
    wrong: int


class TransformedBatches(Method):
    """Trains on every batch under one tuple of transformations: the `ops` and `levels` that `draw` returns."""

    capturable = True
    unit_range = True

    def loss(self, model: Classifier, batch: Batch) -> Tensor:
        """Return the cross-entropy of the batch under the tuple of its step."""
        drawn = self.drawn(batch)
        return super().loss(model, batch._replace(images=transform(batch.images, drawn["ops"], drawn["levels"])))


@dataclass(kw_only=True, eq=False)
class TransformationPool(TransformedBatches, ABC):
    """A growing pool of tuples, one drawn for each batch; subclasses decide how new ones are searched for.

    The pool starts with the identity. Each step draws one entry uniformly and applies it to the whole batch; every
    `interval` steps a search appends the worst tuple it found. Entries are never removed, and may repeat.

    Args:
        interval: steps between searches; 10,000 in the authors' released run, 1,000 in the ASR-Norm paper.
        tuple_length: operations in a tuple.
        search_images: source images by which a tuple is judged, the same in every search.
        search_batch: images the model sees at a time in a search.
        search_rows: which images: the `first` ones, as published, or `even`ly spaced ones, for sets sorted by class.

    Raises:
        InputError: a number below one, or another word.
    """

    checkpoint_after_grow = False  # on a GPU a search of Digits takes a tenth of a second, as a checkpoint does

    ranges: ClassVar = dict.fromkeys(("interval", "tuple_length", "search_images", "search_batch"), (1, inf))

    interval: int = 10_000
    tuple_length: int = 3
    search_images: int = 1000
    search_batch: int = 500
    search_rows: Literal["first", "even"] = "first"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search_rows not in ("first", "even"):
            raise InputError(f"{type(self).__name__}: search_rows must be 'first' or 'even', not {self.search_rows!r}")
        # On the CPU, where a step draws one of them, and `apply_tuple` reads it and runs only the operations in it.
        self.ops = torch.full((1, self.tuple_length), IDENTITY)
        self.levels = torch.zeros((1, self.tuple_length), dtype=torch.int64)
        self._search_graph: SearchGraph | None = None
        self._num_judged = 0  # tuples in the current search, by this process

    def draw(self, step: int, size: int) -> dict[str, Tensor]:  # noqa: ARG002
        """Return the pool's entry for a step."""
        entry = int(torch.randint(len(self.ops), (), generator=self.generator(step, "pool entry")))
        return {"ops": self.ops[entry], "levels": self.levels[entry]}

    def is_growing(self, step: int) -> bool:
        """Tell whether a search is due: after every `interval` updates."""
        return step > 0 and step % self.interval == 0

    def grow(self, model: Classifier, pool: Images, step: int) -> dict[str, float]:
        """Search for the worst tuple and append it to the entries; the images stay as they are."""
        images, labels = self._search_set(pool)
        self._num_judged = 0
        with evaluating(model), torch.no_grad():
            found = self.search(partial(self._count_wrong, model, images, labels), step)
        self.ops = torch.cat([self.ops, found.ops[None]])
        self.levels = torch.cat([self.levels, found.levels[None]])
        return {"search_accuracy": (len(labels) - found.wrong) / len(labels), "tuples": float(len(self.ops))}

    @property
    @abstractmethod
    def num_candidates(self) -> int:
        """Number of tuples that a search judges."""

    @abstractmethod
    def search(self, count_wrong: CountWrong, step: int) -> Found:
        """Return the worst tuple found; of equally bad ones the first."""

    def state_dict(self) -> dict[str, Any]:
        """Return the entries of the pool."""
        return {"ops": self.ops, "levels": self.levels}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the entries of the pool."""
        self.ops, self.levels = state["ops"].cpu(), state["levels"].cpu()

    def _search_set(self, pool: Images) -> tuple[Tensor, Tensor]:
        """The images to judge by, as bytes: a thousand of 224x224 in float would fill 600 MB."""
        count = min(self.search_images, pool.num_source)
        rows = torch.arange(count)
        if self.search_rows == "even":
            rows = rows * pool.num_source // count
        images = torch.cat([to_bytes(pool.images(part)) for part in rows.split(self.search_batch)])
        return images, pool.labels[rows.to(pool.labels.device)]

    def _count_wrong(self, model: Classifier, images: Tensor, labels: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
        # Processes share the tuples, not the images: the batches are then those of a single process, which matters to
        # norms that use batch statistics in evaluation mode.
        own = self.world.share(len(ops))
        if self.capture and own.stop - own.start > 1:
            graph = self._captured(model, images, labels, len(ops))
            if graph.is_captured:
                found = graph.count_wrong(ops[own], levels[own]).to(images.device)
                self._report(len(found))
                return self.world.gather(found).cpu()
        wrong = torch.zeros(own.stop - own.start, dtype=torch.int64, device=images.device)
        for index, (op, level) in enumerate(zip(ops[own], levels[own], strict=True)):
            wrong[index] = count_wrong_under(model, images, labels, op, level, self.search_batch)
            self._report(1)
        return self.world.gather(wrong).cpu()

    def _report(self, count: int) -> None:
        self._num_judged += count
        self.on_progress(min(1.0, self._num_judged * self.world.size / self.num_candidates))

    def _captured(self, model: Classifier, images: Tensor, labels: Tensor, most: int) -> "SearchGraph":
        """The search as a graph; its images stay the same from search to search, its model is trained in place."""
        if self._search_graph is None or self._search_graph.model is not model:
            self._search_graph = SearchGraph(
                model, images, labels, batch=self.search_batch, length=self.tuple_length, most=most
            )
        return self._search_graph


def transform(images: Tensor, ops: Tensor, levels: Tensor) -> Tensor:
    """Apply one tuple to all images; if it is on the CPU and all identities, return the images themselves.

    Tuples are defined on bytes, so the images, float in [0, 1], are rounded to bytes first, and each value of the
    result is a byte over 255. `ops` and `levels`, `(k,)`, are on the CPU, or on the images' device, where the host does
    not read them and one kernel does it all if it can.

    Example:
        >>> images = torch.full((1, 3, 1, 1), 100 / 255)
        >>> (transform(images, torch.tensor([7]), torch.tensor([0])) * 255).flatten()  # red - 120
        tensor([  0., 100., 100.])
    """
    if ops.device.type == "cpu":
        if bool((ops == IDENTITY).all()):
            return images
    elif images.dtype == torch.float32 and (fused := find_fused(images)) is not None:
        values = level_values(images.device, images.shape[2] * images.shape[3])
        return fused(images.detach(), ops, levels, values, byte_values(images.device))
    return to_float(apply_tuple(to_bytes(images), ops, levels), images.dtype)


def count_wrong_under(
    model: Classifier, images: Tensor, labels: Tensor, ops: Tensor, levels: Tensor, batch: int
) -> Tensor:
    """Return how many uint8 images the model, in evaluation mode, misses under one tuple: a scalar on their device."""
    wrong = torch.zeros((), dtype=torch.int64, device=images.device)
    dtype = next(model.parameters()).dtype
    for part, own in zip(images.split(batch), labels.split(batch), strict=True):
        predicted = model(to_float(apply_tuple(part, ops, levels), dtype)).argmax(1)
        wrong += (predicted != own).sum()
    return wrong


class SearchGraph:
    """A search as a CUDA graph: tuples are data, so that one graph, replayed per tuple, judges them all.

    The weights of the model may change between searches, in place.
    """

    def __init__(self, model: Classifier, images: Tensor, labels: Tensor, *, batch: int, length: int, most: int):
        self.model, self._images, self._labels, self._batch, self._most = model, images, labels, batch, most
        self._tuples = torch.zeros((most, 2, length), dtype=torch.int64, device=images.device)
        self._wrong = torch.zeros(most, dtype=torch.int64, device=images.device)
        self._index = torch.zeros(1, dtype=torch.int64, device=images.device)
        self._graph = capture(self._judge, images.device, changed=[self._index], what="the search")

    @property
    def is_captured(self) -> bool:
        """Tell whether the capture succeeded; if not, the log says why."""
        return self._graph is not None

    def count_wrong(self, ops: Tensor, levels: Tensor) -> Tensor:
        """Return how many images the model misses under each tuple, int64 on the CPU; waits for the device once."""
        assert self._graph is not None
        found = []
        for part in torch.stack([ops, levels], 1).split(self._most):
            self._tuples[: len(part)].copy_(part)
            self._index.zero_()
            for _ in range(len(part)):
                self._graph.replay()
            found.append(self._wrong[: len(part)].cpu())
        return torch.cat(found)

    def _judge(self) -> None:
        ops, levels = self._tuples.index_select(0, self._index)[0]
        wrong = count_wrong_under(self.model, self._images, self._labels, ops, levels, self._batch)
        self._wrong.index_copy_(0, self._index, wrong.view(1))
        self._index += 1
