"""State shared by all measurements of one model: images, labels and cached results."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from asrnorm.audit.images import LabeledImages
from asrnorm.audit.model import AuditedModel
from asrnorm.audit.result import Plan, Scores, measure
from asrnorm.core.errors import StorageError
from asrnorm.core.files import describe_failure
from asrnorm.core.progress import PartProgress
from asrnorm.core.reading import parse_json
from asrnorm.data.augment import to_float

_FORMAT = 2  # of cached results; those of another are measured again
_CPU_BATCH, _BATCH = 16, 64  # 16 is a third faster than 50 on a CPU, whose cache holds it


class Images(Protocol):
    """Images whose slices are uint8 arrays `(n, h, w, 3)` or tensors `(n, 3, h, w)`."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Any: ...


class ResultCache:
    """Results on disk, one JSON line each, so that a killed audit resumes; without a path, in memory only.

    A line has a checksum. A line that was cut off or changed is ignored, and its result is measured again.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._values: dict[tuple[str, str], Any] = {}
        if path is None:
            return
        try:
            lines = path.read_bytes().splitlines()
        except FileNotFoundError:
            lines = []
        except OSError as error:
            raise StorageError(describe_failure(error, path)) from None
        for line in lines:
            try:
                row = parse_json(line)
                if row == _seal(row["key"], row["part"], row["value"]):
                    self._values[row["key"], row["part"]] = row["value"]
            except (ValueError, KeyError, TypeError):
                continue

    def get(self, key: str, part: str) -> Any:
        """Return the result of a part, or `None`."""
        return self._values.get((key, part))

    def put(self, key: str, part: str, value: Any) -> None:
        """Add a result and write it to disk."""
        self._values[key, part] = value
        if self.path is None:
            return
        # The leading line break ends a line that was cut off.
        line = f"\n{json.dumps(_seal(key, part, value), allow_nan=False)}\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(describe_failure(error, self.path)) from None


def _seal(key: str, part: str, value: Any) -> dict[str, Any]:
    """Return a line of the cache with its checksum."""
    checksum = hashlib.sha256(json.dumps([key, part, value], sort_keys=True).encode()).hexdigest()[:16]
    return {"key": key, "part": part, "value": value, "checksum": checksum}


class ModelSession:
    """Measures one model, which must be probed, on the images of an audit; looks up results that the cache has."""

    def __init__(
        self,
        model: AuditedModel,
        images: LabeledImages,
        outputs: Mapping[str, int],
        plan: Plan,
        cache: ResultCache,
        progress: PartProgress,
    ) -> None:
        self.model, self.images, self.plan, self.progress = model, images, plan, progress
        self.batch = model.input_spec.batch or (_CPU_BATCH if model.device.type == "cpu" else _BATCH)
        by_class = torch.tensor([outputs[name] for name in images.classes])
        self.labels = by_class[torch.from_numpy(images.labels)]
        self.clean_right: Tensor | None = None
        self._cache = cache
        facts = [_FORMAT, model.fingerprint, dataclasses.astuple(model.input_spec), images.fingerprint, plan.seed]
        self._key = hashlib.sha256(json.dumps([*facts, self.labels.tolist()]).encode()).hexdigest()[:20]

    def has(self, part: str) -> bool:
        """Return whether the cache has a part."""
        return self._cache.get(self._key, part) is not None

    def recall(self, part: str, passes: int, compute: Callable[[], Any]) -> Any:
        """Return the value of a part from the cache, or compute and store it."""
        value = self._cache.get(self._key, part)
        if value is not None:
            self.progress.skip(passes)
            return value
        self.progress.begin(part)
        value = compute()
        self._cache.put(self._key, part, value)
        self.progress.advance(passes)
        return value

    def predict(self, images: Images) -> Tensor:
        """Return the logits of images, batch by batch."""
        starts = range(0, len(images), self.batch)
        return torch.cat([self.model.predict(to_unit(images[start : start + self.batch])) for start in starts])

    def score(self, part: str, make_images: Callable[[], Images]) -> Scores:
        """Return the scores on one version of all images, from the cache if it has them."""

        def compute() -> dict[str, Any]:
            return dataclasses.asdict(measure(self.predict(make_images()), self.labels, self.clean_right))

        return Scores(**self.recall(part, len(self.images), compute))

    def score_clean(self) -> Scores:
        """Return the scores on the clean images, and remember which of them are right."""

        def compute() -> dict[str, Any]:
            logits = self.predict(self.images.images)
            return {"scores": dataclasses.asdict(measure(logits, self.labels)), "guesses": logits.argmax(1).tolist()}

        values = self.recall("clean", len(self.images), compute)
        self.clean_right = torch.tensor(values["guesses"]) == self.labels
        return Scores(**values["scores"])


def to_unit(images: NDArray[np.uint8] | Tensor) -> Tensor:
    """Return uint8 `(n, h, w, 3)`, or as a tensor `(n, 3, h, w)`, as float `(n, 3, h, w)` in [0, 1]."""
    return to_float(images if isinstance(images, Tensor) else to_nchw(images))


def to_nchw(images: NDArray[np.uint8]) -> Tensor:
    """Return uint8 `(n, h, w, 3)` as a contiguous tensor `(n, 3, h, w)`."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).contiguous()


def to_nhwc(images: Tensor) -> NDArray[np.uint8]:
    """Return a uint8 tensor `(n, 3, h, w)` on the CPU as an array `(n, h, w, 3)`."""
    return np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
