"""The images of an audit: some of each class, decoded once, in memory."""

import hashlib
import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.folder_listing import list_labeled, order_classes, refuse_links_to_one
from asrnorm.data.image import read_image
from asrnorm.data.image_set import choose_evenly
from asrnorm.data.image_table import Sample, to_nfc

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Images with the classes of their folders.

    Attributes:
        images: uint8 `(n, h, w, 3)`.
        labels: int64 `(n,)`, into `classes`.
        classes: names of the folders, in order.
        keys: path of each image below the folder.
        skipped: one line for each file that could not be read.
        num_found: images in the folder, of which these are some.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    keys: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    num_found: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fingerprint(self) -> str:
        """A hash of pixels, labels and names: the same images anywhere are the same."""
        digest = hashlib.sha256("\0".join(self.classes).encode("utf-8", "surrogateescape"))
        digest.update(repr(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()[:16]


def read_pictures(
    folder: Path, size: tuple[int, int], limit: int | None = None, known: Collection[str] = ()
) -> Pictures:
    """Read images `<class>/<image>`, at most `limit` of them, spread evenly over classes and over each class.

    A file that cannot be read is left out and counted; an empty folder of a class is passed over and told of.

    Args:
        folder: with one sub folder a class; or a table, as `list_labeled` takes it.
        size: height and width to which every image is resized.
        limit: the most images; `None` takes all.
        known: names of classes, whose folders may hold folders.

    Raises:
        InputError: no image, one class, an image under two names, or none that can be read.
    """
    samples = list_labeled(folder, known=set(map(to_nfc, known)), skip_empty=True)
    refuse_links_to_one(folder, samples)
    if len(domains := dict.fromkeys(sample.domain for sample in samples)) > 1:
        _log.warning("%s: images of several domains are audited together: %s", folder, ", ".join(domains))
    spelled = {to_nfc(sample.label): sample.label for sample in samples}  # of all domains that a table may have
    classes = order_classes(spelled.values())  # as their folders spell them: a model may know no more than this order
    if len(classes) < 2:
        raise InputError(f"{folder}: one class ({classes[0]}); an audit needs at least two folders of images")
    numbers = {to_nfc(name): number for number, name in enumerate(classes)}
    most = len(samples) if limit is None else limit
    chosen = choose_evenly([numbers[to_nfc(sample.label)] for sample in samples], most)
    images, kept, skipped = [], list[Sample](), []
    for sample in (samples[row] for row in chosen):
        try:
            images.append(read_image(sample.path, size=size))
            kept.append(sample)
        except InputError as error:
            skipped.append(str(error))
    if not kept:
        raise InputError(f"{folder}: none of {len(skipped)} images can be read; the first: {skipped[0]}")
    return Pictures(
        images=np.stack(images),
        labels=np.array([numbers[to_nfc(sample.label)] for sample in kept], np.int64),
        classes=classes,
        keys=tuple(sample.key for sample in kept),
        skipped=tuple(skipped),
        num_found=len(samples),
    )
