"""The images a run trains on: the source set, and the fictitious domains that a method grows from it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from asrnorm.core.errors import InputError
from asrnorm.data.augment.base import to_float
from asrnorm.data.image import read_images
from asrnorm.data.image_set import FileSet, ImageSet

_COPY_ROWS = 2048  # images copied to the device at a time, so that a memory map never lies in memory as a whole


class Pool:
    """A growing set of labelled images on one device; the source is kept as uint8, grown parts as they were made.

    Args:
        source: the source set; files that do not fit in memory are decoded whenever a batch asks for them.
        device: where the images are kept.

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
        self.num_source = len(source)
        self.parts: list[tuple[Tensor, Tensor]] = []
        self._starts = [0, len(source)]

    def __len__(self) -> int:
        """Return the number of images, grown ones included."""
        return self._starts[-1]

    def append(self, images: Tensor, labels: Tensor) -> None:
        """Add a fictitious domain.

        Args:
            images: float `(n, 3, h, w)`, kept in float32, or uint8.
            labels: int64 `(n,)`.
        """
        if images.shape[1:] != (3, *self.image_size) or len(images) != len(labels):
            height, width = self.image_size
            raise InputError(f"cannot add images {tuple(images.shape)} to a pool of images (n, 3, {height}, {width})")
        images = images.detach().to(self.device)
        part = images if images.dtype == torch.uint8 else images.float()
        labels = labels.detach().to(self.device, torch.int64)
        self.parts.append((part, labels))
        self._starts.append(len(self) + len(part))
        self.labels = torch.cat([self.labels, labels])

    def restore(self, parts: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Put other grown parts in the place of those there are, as a resumed run does."""
        self.labels = self.labels[: self.num_source]
        self.parts = []
        self._starts = self._starts[:2]
        for images, labels in parts:
            self.append(images, labels)

    def images(self, rows: Tensor) -> Tensor:
        """Return images by row, float32 `(n, 3, h, w)`; the source's lie in [0, 1].

        Args:
            rows: int64, on the CPU or on the device; no device is waited for, but to read files by rows that lie there.
        """
        if not self.parts:
            return to_float(self._source[self._move(rows)])
        if rows.device.type != "cpu":
            return self._choose(rows)
        out = torch.empty((len(rows), 3, *self.image_size), device=self.device)
        for start, stop, part in zip(
            self._starts, self._starts[1:], (self._source, *(p for p, _ in self.parts)), strict=False
        ):
            inside = ((rows >= start) & (rows < stop)).nonzero().squeeze(1)
            if len(inside):
                out[self._move(inside)] = to_float(part[self._move(rows[inside] - start)])
        return out

    def _choose(self, rows: Tensor) -> Tensor:
        """Every part gives an image for every row, and the row picks one: nothing is read, shapes are fixed."""
        out = to_float(self._source[rows.clamp(max=self.num_source - 1)])
        for start, (part, _) in zip(self._starts[1:], self.parts, strict=False):
            own = to_float(part[(rows - start).clamp(0, len(part) - 1)])
            out = torch.where((rows >= start)[:, None, None, None], own, out)
        return out

    @property
    def is_in_memory(self) -> bool:
        """Tell whether all images lie on the device, and none is decoded when asked for."""
        return isinstance(self._source, Tensor)

    def _move(self, rows: Tensor) -> Tensor:
        return rows.to(self.device, non_blocking=True)


class _Files:
    """Rows of files, decoded when asked for; indexed as a tensor of images is."""

    def __init__(self, data: FileSet, device: torch.device) -> None:
        self._data, self._device = data, device

    def __getitem__(self, rows: Tensor) -> Tensor:
        paths = [self._data.paths[row] for row in rows.tolist()]
        blocks = list(read_images(paths, size=self._data.image_size))
        stacked = np.concatenate(blocks) if blocks else np.empty((0, *self._data.image_size, 3), np.uint8)
        # As images in memory lie: a network may round otherwise where its input lies otherwise.
        return torch.from_numpy(stacked).permute(0, 3, 1, 2).contiguous().to(self._device)


def _copy(source: ImageSet, device: torch.device) -> Tensor:
    height, width = source.image_size
    images = torch.empty((len(source), 3, height, width), dtype=torch.uint8, device=device)
    for start in range(0, len(source), _COPY_ROWS):
        part = torch.from_numpy(np.array(source.images[start : start + _COPY_ROWS]))
        images[start : start + _COPY_ROWS] = part.permute(0, 3, 1, 2).to(device)
    return images
