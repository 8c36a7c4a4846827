"""Where one model is measured: its images, its right answers, and the ledger of what is known of it."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from asrnorm.audit.ledger import Ledger
from asrnorm.audit.measure import measure
from asrnorm.audit.picture import Pictures
from asrnorm.audit.plan import Plan
from asrnorm.audit.result import SCHEMA, Reading
from asrnorm.audit.subject import Subject
from asrnorm.core.progress import PartProgress

_BATCH = 16  # images at a time: what a core keeps in its cache, a third faster than 50; the same on every device


class Desk:
    """What all measurements of one model share: its images, its right answers, and the ledger of what is known.

    Args:
        subject: the model, probed.
        pictures: the images.
        outputs: of each class of the pictures.
        plan: the extent.
        ledger: where results are kept.
        progress: told of every pass.
    """

    def __init__(
        self,
        subject: Subject,
        pictures: Pictures,
        outputs: Mapping[str, int],
        plan: Plan,
        ledger: Ledger,
        progress: PartProgress,
    ) -> None:
        self.subject, self.pictures, self.plan = subject, pictures, plan
        self.progress = progress
        self.batch = subject.form.batch or _BATCH
        by_class = torch.tensor([outputs[name] for name in pictures.classes])
        self.labels = by_class[torch.from_numpy(pictures.labels)]
        self.clean_right: Tensor | None = None
        self._ledger = ledger
        facts = [SCHEMA, subject.fingerprint, dataclasses.astuple(subject.form), pictures.fingerprint, plan.seed]
        self._key = hashlib.sha256(json.dumps([*facts, self.labels.tolist()]).encode()).hexdigest()[:20]

    def knows(self, part: str) -> bool:
        """Tell whether a part was measured before."""
        return self._ledger.get(self._key, part) is not None

    def recall(self, part: str, passes: int, compute: Callable[[], Any]) -> Any:
        """Return the plain value of a part from the ledger, or compute it and keep it."""
        known = self._ledger.get(self._key, part)
        if known is not None:
            self.progress.skip(passes)
            return known
        self.progress.begin(part)
        value = compute()
        self._ledger.put(self._key, part, value)
        self.progress.advance(passes)
        return value

    def predict(self, images: NDArray[np.uint8]) -> Tensor:
        """Return the logits of uint8 images `(n, h, w, 3)`, batch by batch."""
        return torch.cat(
            [self.subject.predict(to_unit(images[i : i + self.batch])) for i in range(0, len(images), self.batch)]
        )

    def read(self, logits: Tensor) -> dict[str, Any]:
        """Return a reading of the logits of all images as plain values."""
        return dataclasses.asdict(measure(logits, self.labels, self.clean_right))

    def look_at_clean(self) -> Reading:
        """Measure the images as they are, and note which of them are right."""

        def compute() -> dict[str, Any]:
            logits = self.predict(self.pictures.images)
            return {"reading": self.read(logits), "guesses": logits.argmax(1).tolist()}

        known = self.recall("clean", len(self.pictures), compute)
        self.clean_right = torch.tensor(known["guesses"]) == self.labels
        return Reading(**known["reading"])


def to_unit(images: NDArray[np.uint8]) -> Tensor:
    """Return uint8 `(n, h, w, 3)` as float `(n, 3, h, w)` in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float().contiguous() / 255
