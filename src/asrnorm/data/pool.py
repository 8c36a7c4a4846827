"""The images that a run trains on: the source set, and the fictitious domains that a method generates from it."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import to_float
from asrnorm.data.image_set import FileSet, ImageSet

_COPY_ROWS = 2048  # images copied to the device at a time, so that a memory map is never in memory as a whole


class Pool:
    """A growing set of labelled images on one device; the source is kept as uint8, generated parts in their dtype.

    If the source is a `FileSet`, its files are decoded for every batch.

    Example:
        >>> pool = Pool(ImageSet(np.zeros((5, 8, 8, 3), np.uint8), np.arange(5)))
        >>> pool.append(torch.ones(2, 3, 8, 8), torch.tensor([3, 4]))
        >>> len(pool), pool.num_source, pool.images(torch.tensor([0, 6])).amax((1, 2, 3)).tolist()
        (7, 5, [0.0, 1.0])
    """

    def __init__(self, source: ImageSet | FileSet, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.image_size = source.image_size
        self._source = _Files(source, self.device) if isinstance(source, FileSet) else _copy(source, self.device)
        self.labels = torch.from_numpy(np.array(source.labels)).to(self.device)
        domains = source.domains
        self.domains = None if domains is None else torch.from_numpy(np.array(domains)).to(self.device)
        self.num_source = len(source)
        self.parts: list[tuple[Tensor, Tensor]] = []
        self._starts = [0, len(source)]

    def __len__(self) -> int:
        """Return the number of images, generated ones included."""
        return self._starts[-1]

    def append(self, images: Tensor, labels: Tensor) -> None:
        """Add a fictitious domain: images `(n, 3, h, w)` in float, kept in float32, or uint8, and labels `(n,)`."""
        if images.shape[1:] != (3, *self.image_size) or len(images) != len(labels):
            height, width = self.image_size
            raise InputError(f"cannot add images {tuple(images.shape)} to a pool of images (n, 3, {height}, {width})")
        images = images.detach().to(self.device)
        part = images if images.dtype == torch.uint8 else images.float()
        labels = labels.detach().to(self.device, torch.int64)
        self.parts.append((part, labels))
        self._starts.append(len(self) + len(part))
        self.labels = torch.cat([self.labels, labels])
        if self.domains is not None:
            self.domains = torch.cat([self.domains, torch.full_like(labels, -1)])

    def restore(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Replace the generated parts, as a resumed run does."""
        self.labels = self.labels[: self.num_source]
        self.domains = None if self.domains is None else self.domains[: self.num_source]
        self.parts = []
        self._starts = self._starts[:2]
        for images, labels in parts:
            self.append(images, labels)

    def images(self, rows: Tensor) -> Tensor:
        """Return images by row, float32 `(n, 3, h, w)`; those of the source are in [0, 1].

        Rows are on the CPU or on the device; nothing synchronizes, except to read files by rows on the device.
        """
        if not self.parts:
            return to_float(self._source[self._move(rows)])
        if rows.device.type != "cpu":
            return self._choose(rows)
        out = torch.empty((len(rows), 3, *self.image_size), device=self.device)
        parts = (self._source, *(part for part, _ in self.parts))
        for (start, stop), part in zip(pairwise(self._starts), parts, strict=True):
            inside = ((rows >= start) & (rows < stop)).nonzero().squeeze(1)
            if len(inside):
                out[self._move(inside)] = to_float(part[self._move(rows[inside] - start)])
        return out

    def _choose(self, rows: Tensor) -> Tensor:
        """Take an image of every part for every row and select one: the host reads nothing, and shapes are fixed."""
        out = to_float(self._source[rows.clamp(max=self.num_source - 1)])
        for start, (part, _) in zip(self._starts[1:], self.parts, strict=False):
            own = to_float(part[(rows - start).clamp(0, len(part) - 1)])
            out = torch.where((rows >= start)[:, None, None, None], own, out)
        return out

    @property
    def is_in_memory(self) -> bool:
        """Return whether all images are on the device, so that none is decoded from a file."""
        return isinstance(self._source, Tensor)

    def _move(self, rows: Tensor) -> Tensor:
        return rows.to(self.device, non_blocking=True)


class _Files:
    """Files, decoded when indexed like a tensor of images."""

    def __init__(self, data: FileSet, device: torch.device) -> None:
        self._data, self._device = data, device

    def __getitem__(self, rows: Tensor) -> Tensor:
        images_nhwc = torch.from_numpy(self._data.read_rows(rows.tolist()))
        # In the memory order of `_copy`: a network may round otherwise for another order.
        return images_nhwc.permute(0, 3, 1, 2).contiguous().to(self._device)


def _copy(source: ImageSet, device: torch.device) -> Tensor:
    height, width = source.image_size
    images = torch.empty((len(source), 3, height, width), dtype=torch.uint8, device=device)
    for start in range(0, len(source), _COPY_ROWS):
        part = torch.from_numpy(np.array(source.images[start : start + _COPY_ROWS]))
        images[start : start + _COPY_ROWS] = part.permute(0, 3, 1, 2).to(device)
    return images
