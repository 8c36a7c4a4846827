"""What many steps draw, as one piece of memory on the device: uploaded at once, read row by row."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

_ALIGNMENT = 8  # bytes of the widest number


class _Field(NamedTuple):
    start: int
    stop: int
    dtype: torch.dtype
    shape: torch.Size


class DrawTable:
    """Rows of named tensors of fixed shapes, packed as bytes.

    Written on the host in one of two pieces of pinned memory in turn, so that one is filled while the other is still
    being copied.

    Args:
        example: the tensors of one row, on the CPU.
        rows: how many there is room for.
        device: where they are read.

    Example:
        >>> table = DrawTable({"rows": torch.tensor([4, 2]), "flip": torch.tensor(True)}, 2, torch.device("cpu"))
        >>> table.write([{"rows": torch.tensor([1, 3]), "flip": torch.tensor(False)}])
        >>> {name: value.tolist() for name, value in table.read(torch.tensor([0])).items()}
        {'rows': [1, 3], 'flip': False}
    """

    def __init__(self, example: Mapping[str, Tensor], rows: int, device: torch.device) -> None:
        self._fields: dict[str, _Field] = {}
        end = 0
        for name, value in example.items():
            stop = end + value.numel() * value.element_size()
            self._fields[name] = _Field(end, stop, value.dtype, value.shape)
            end = math.ceil(stop / _ALIGNMENT) * _ALIGNMENT
        on_gpu = device.type == "cuda"
        self._table = torch.zeros((rows, max(end, _ALIGNMENT)), dtype=torch.uint8, device=device)
        self._staged = [torch.zeros(self._table.shape, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(2)]
        self._copied = [torch.cuda.Event() if on_gpu else None for _ in range(2)]
        self._turn = 0

    def __len__(self) -> int:
        """Return how many rows there is room for."""
        return len(self._table)

    def write(self, rows: list[dict[str, Tensor]]) -> None:
        """Fill the table from its first row on; the copy to the device is not waited for."""
        self._turn = 1 - self._turn
        staged, copied = self._staged[self._turn], self._copied[self._turn]
        if copied is not None:
            copied.synchronize()
        for name, field in self._fields.items():
            if field.stop > field.start:
                values = torch.stack([row[name] for row in rows]).view(len(rows), -1)
                staged[: len(rows), field.start : field.stop].copy_(values.view(torch.uint8))
        self._table[: len(rows)].copy_(staged[: len(rows)], non_blocking=True)
        if copied is not None:
            copied.record(torch.cuda.current_stream(self._table.device))

    def read(self, index: Tensor) -> dict[str, Tensor]:
        """Return a row without reading its number, an int64 tensor of one element on the device."""
        row = self._table.index_select(0, index)[0]
        return {
            name: row[field.start : field.stop].view(field.dtype).view(field.shape)
            for name, field in self._fields.items()
        }
