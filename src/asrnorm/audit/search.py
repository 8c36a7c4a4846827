"""RSDA's random search, turned on a finished model: which tuple of transformations hurts it most."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from asrnorm.audit.desk import Desk
from asrnorm.audit.plan import Plan
from asrnorm.audit.result import Reading, Search
from asrnorm.data.augment import RSDA_OPERATIONS, apply_named, apply_tuple
from asrnorm.methods.rsda import RSDA


def measure_searches(desks: Sequence[Desk]) -> list[Search]:
    """Return the worst tuple found for each model, and what every model is worth under it."""
    found = [_search(desk) for desk in desks]
    searches: list[Search] = []
    for values in found:
        operations = [(name, float(level)) for name, level in values["operations"]]
        readings = [_read(desk, operations) for desk in desks]
        searches.append(
            Search(
                operations=operations,
                candidates=values["candidates"],
                num_images=values["num_images"],
                wrong=values["wrong"],
                reading=readings[len(searches)],
                accuracy={desk.subject.name: reading.accuracy for desk, reading in zip(desks, readings, strict=True)},
            )
        )
    return searches


def count_passes(plan: Plan, count: int) -> int:
    """Return the passes of a search and of the reading under what it found."""
    return plan.candidates * min(plan.search_images, count) + count


def apply_operations(images: NDArray[np.uint8], operations: Sequence[tuple[str, float]]) -> NDArray[np.uint8]:
    """Return uint8 images `(n, h, w, 3)` under named operations, one after the other.

    Example:
        >>> apply_operations(np.full((1, 1, 1, 3), 100, np.uint8), [("shift_red", -120.0)]).flatten().tolist()
        [0, 100, 100]
    """
    return _to_nhwc(apply_named(_to_nchw(images), operations))


def _search(desk: Desk) -> dict[str, Any]:
    plan = desk.plan
    count = min(plan.search_images, len(desk.pictures))
    rows = np.arange(count) * len(desk.pictures) // count
    images, labels = _to_nchw(desk.pictures.images[rows]), desk.labels[rows]
    method = RSDA(candidates=plan.candidates, search_images=count)
    method.seed = plan.seed

    def count_wrong(ops: Tensor, levels: Tensor) -> Tensor:
        wrong = []
        for op, level in zip(ops, levels, strict=True):

            def judge(op: Tensor = op, level: Tensor = level) -> int:
                changed = _to_nhwc(apply_tuple(images, op, level))
                return int((desk.predict(changed).argmax(1) != labels).sum())

            wrong.append(desk.recall(f"search/{count}/{_join(_list_operations(op, level))}", count, judge))
        return torch.tensor(wrong)

    found = method.search(count_wrong, 0)
    operations = _list_operations(found.ops, found.levels)
    return {"operations": operations, "candidates": plan.candidates, "num_images": count, "wrong": found.wrong}


def _read(desk: Desk, operations: list[tuple[str, float]]) -> Reading:
    part = f"tuple/{_join(operations)}"
    images = desk.pictures.images
    values = desk.recall(part, len(images), lambda: desk.read(desk.predict(apply_operations(images, operations))))
    return Reading(**values)


def _list_operations(ops: Tensor, levels: Tensor) -> list[tuple[str, float]]:
    pairs = [(RSDA_OPERATIONS[op], level) for op, level in zip(ops.tolist(), levels.tolist(), strict=True)]
    return [(operation.name, operation.levels[level]) for operation, level in pairs]


def _join(operations: Sequence[tuple[str, float]]) -> str:
    return "+".join(f"{name}={level:g}" for name, level in operations)


def _to_nchw(images: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).contiguous()


def _to_nhwc(images: Tensor) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
