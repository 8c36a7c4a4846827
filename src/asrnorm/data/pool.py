"""The images a run trains on: the source set, and the fictitious domains that a method grows from it."""

import numpy as np
import torch
from torch import Tensor

from asrnorm.data.image_set import ImageSet
from asrnorm.errors import InputError

_COPY_ROWS = 2048  # images copied to the device at a time, so that a memory map never lies in memory as a whole


class Pool:
    """A growing set of labelled images on one device; the source is kept as uint8, grown parts as they were made.

    Args:
        source: the source set.
        device: where the images are kept.

    Example:
        >>> pool = Pool(ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5)))
        >>> pool.append(torch.ones(2, 3, 8, 8), torch.tensor([3, 4]))
        >>> len(pool), pool.num_source, pool.images(torch.tensor([0, 6])).amax((1, 2, 3)).tolist()
        (7, 5, [0.0, 1.0])
    """

    def __init__(self, source: ImageSet, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        height, width = source.image_size
        self._source = torch.empty((len(source), 3, height, width), dtype=torch.uint8, device=self.device)
        for start in range(0, len(source), _COPY_ROWS):
            part = torch.from_numpy(np.array(source.images[start : start + _COPY_ROWS]))
            self._source[start : start + _COPY_ROWS] = part.permute(0, 3, 1, 2).to(self.device)
        self.labels = torch.from_numpy(np.array(source.labels)).to(self.device)
        self.parts: list[tuple[Tensor, Tensor]] = []
        self._starts = [0, len(source)]

    @property
    def num_source(self) -> int:
        """How many of the images are the source's."""
        return len(self._source)

    def __len__(self) -> int:
        """Return the number of images, grown ones included."""
        return self._starts[-1]

    def append(self, images: Tensor, labels: Tensor) -> None:
        """Add a fictitious domain.

        Args:
            images: float `(n, 3, h, w)`, kept in float32, or uint8.
            labels: int64 `(n,)`.
        """
        if images.shape[1:] != self._source.shape[1:] or len(images) != len(labels):
            raise InputError(f"cannot add images {tuple(images.shape)} to a pool of {tuple(self._source.shape)}")
        images = images.detach().to(self.device)
        part = images if images.dtype == torch.uint8 else images.float()
        labels = labels.detach().to(self.device, torch.int64)
        self.parts.append((part, labels))
        self._starts.append(len(self) + len(part))
        self.labels = torch.cat([self.labels, labels])

    def images(self, rows: Tensor) -> Tensor:
        """Return images by row, float32 `(n, 3, h, w)`; the source's lie in [0, 1]."""
        rows = rows.to(self.device)
        if not self.parts:
            return _to_float(self._source[rows])
        out = torch.empty((len(rows), *self._source.shape[1:]), device=self.device)
        for start, stop, part in zip(
            self._starts, self._starts[1:], (self._source, *(p for p, _ in self.parts)), strict=False
        ):
            inside = ((rows >= start) & (rows < stop)).nonzero().squeeze(1)
            out[inside] = _to_float(part[rows[inside] - start])
        return out


def _to_float(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images
