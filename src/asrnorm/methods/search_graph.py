"""A search for the worst tuple, captured: the tuples are data, and one graph judges them all."""

import torch
from torch import Tensor

from asrnorm.data.augment import apply_tuple
from asrnorm.graph import capture
from asrnorm.methods.transformation import to_unit
from asrnorm.models import Classifier


def count_wrong_under(
    model: Classifier, images: Tensor, labels: Tensor, ops: Tensor, levels: Tensor, batch: int
) -> Tensor:
    """Return how many of the images the model misses under one tuple, a scalar on their device.

    Args:
        model: as evaluation sees it.
        images: uint8 `(n, 3, h, w)`.
        labels: int64 `(n,)`.
        ops: of the tuple, `(k,)`; on the CPU they are read.
        levels: likewise.
        batch: images the model sees at a time.
    """
    wrong = torch.zeros((), dtype=torch.int64, device=images.device)
    dtype = next(model.parameters()).dtype
    for part, own in zip(images.split(batch), labels.split(batch), strict=True):
        predicted = model(to_unit(apply_tuple(part, ops, levels), dtype)).argmax(1)
        wrong += (predicted != own).sum()
    return wrong


class SearchGraph:
    """Judges tuples on fixed images by one replay each; the answers are waited for once.

    Args:
        model: its weights may change between searches, in place.
        images: uint8 `(n, 3, h, w)` on a CUDA device.
        labels: int64 `(n,)`.
        batch: images the model sees at a time.
        length: operations in a tuple.
        most: tuples judged at a time.
    """

    def __init__(self, model: Classifier, images: Tensor, labels: Tensor, *, batch: int, length: int, most: int):
        self.model, self._images, self._labels, self._batch, self._most = model, images, labels, batch, most
        self._tuples = torch.zeros((most, 2, length), dtype=torch.int64, device=images.device)
        self._wrong = torch.zeros(most, dtype=torch.int64, device=images.device)
        self._index = torch.zeros(1, dtype=torch.int64, device=images.device)
        self._graph = capture(self._judge, images.device, changed=[self._index], what="the search")

    @property
    def is_captured(self) -> bool:
        """Tell whether there is a graph; where there is none, the log has said why."""
        return self._graph is not None

    def count_wrong(self, ops: Tensor, levels: Tensor) -> Tensor:
        """Return how many images each tuple makes the model miss, int64 on the CPU.

        Args:
            ops: `(count, length)` on the CPU.
            levels: likewise.
        """
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
