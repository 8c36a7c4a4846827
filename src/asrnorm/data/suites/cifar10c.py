"""CIFAR-10-C: train on CIFAR-10, test on 19 corruptions at 5 severities.

Hendrycks and Dietterich, 2019. A target is called `<corruption>/<severity>`; the published arrays hold the 10,000 test
images at severity 1, then at severity 2, and so on.
"""

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.cache import EntryWriter, cache_folder, describe_files, open_entry
from asrnorm.data.download.content import GENERATED_RECORD, read_record
from asrnorm.data.image_set import ImageSet, split_stratified
from asrnorm.data.readers import CIFAR10_CLASSES, open_npy, read_cifar_binary, read_cifar_python
from asrnorm.data.readers.cifar import SIDE
from asrnorm.data.suites.base import SUITES, Part, Suite, find_first, warn_of_count

# Hendrycks and Dietterich's four groups; the last corruption of each is one of the four extra ones.
GROUPS = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur"),
    "weather": ("snow", "frost", "fog", "brightness", "spatter"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression", "saturate"),
}
STANDARD = tuple(name for names in GROUPS.values() for name in names[:-1])
EXTRA = tuple(names[-1] for names in GROUPS.values())
# The paper averages over all 19; AugMix, ME-ADA and TTT over the standard 15.
CHOICES = {"all": STANDARD + EXTRA, "standard": STANDARD}
NUM_SEVERITIES = 5
NUM_TRAIN = 50_000
NUM_TEST = 10_000

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = ("test_batch",)


@SUITES.register("cifar10c")
class CIFAR10C(Suite):
    """CIFAR-10 as source; its test images under 19 corruptions at 5 severities as targets; 32x32 RGB.

    Args:
        root: the data folder; `None` is `ASRNORM_DATA`.
        corruptions: `all` (19) or `standard` (15).
        held_out: number of training images, equally many of each class, that are validation images instead.

    Example:
        >>> CIFAR10C().classes[3], [round(value, 3) for value in CIFAR10C.mean]
        ('cat', [0.491, 0.482, 0.447])
    """

    name = "cifar10c"
    classes = CIFAR10_CLASSES
    image_size = (SIDE, SIDE)
    sources = ("cifar10",)
    mean = (125.3 / 255, 123.0 / 255, 113.9 / 255)
    std = (63.0 / 255, 62.1 / 255, 66.7 / 255)

    def __init__(self, *, root: str | Path | None = None, corruptions: str = "all", held_out: int = 0) -> None:
        super().__init__(root=root)
        if not 0 <= held_out <= NUM_TRAIN // 2:
            raise InputError(f"held_out of suite 'cifar10c' must be from 0 to {NUM_TRAIN // 2:,}, not {held_out:,}")
        if held_out % len(self.classes):
            raise InputError(
                f"held_out of suite 'cifar10c' must be a multiple of the {len(self.classes)} classes, not {held_out:,}"
            )
        if corruptions not in CHOICES:
            raise UnknownNameError(describe_unknown("corruptions of suite 'cifar10c',", corruptions, CHOICES))
        self.corruptions = CHOICES[corruptions]
        self.held_out = held_out

    @property
    def target_names(self) -> tuple[str, ...]:
        """`<corruption>/<severity>` for every corruption that is present."""
        return self._severities(present=True)

    @property
    def missing_targets(self) -> tuple[str, ...]:
        """`<corruption>/<severity>` for every corruption that is missing."""
        return self._severities(present=False)

    @property
    def edition(self) -> str:
        """How many of the present arrays were generated here, and with which seed."""
        present = [part.name for part in self.parts() if part.role == "target" and part.present]
        record = read_record(self._file(GENERATED_RECORD))
        generated = [record[name] for name in present if name in record]
        seeds = sorted({str(entry.get("seed")) for entry in generated})
        with_seed = f", seed {' and '.join(seeds)}" if seeds else ""
        return f"{len(generated)} of {len(present)} corruptions generated{with_seed}" if present else ""

    def parts(self) -> tuple[Part, ...]:
        """Return which domains are present, from file names alone."""
        files = self._batch_files(_TRAIN + _TEST)
        detail = f"no cifar-10-batches-bin or cifar-10-batches-py in {self.root}; try: asrnorm data fetch cifar10"
        source = Part("cifar10", "source", bool(files), str(files[0].parent) if files else detail)
        return source, *(self._corruption_part(name) for name in self.corruptions)

    def load_train(self) -> ImageSet:
        """Return the 50,000 training images without those held out."""
        images = self._open_batches("train", _TRAIN)
        return images.take(self._split(images)[1]) if self.held_out else images

    def load_validation(self) -> ImageSet | None:
        """Return the images held out; by default none: the protocol trains on all and keeps the last checkpoint."""
        if not self.held_out:
            return None
        images = self._open_batches("train", _TRAIN)
        return images.take(self._split(images)[0])

    def load_source_test(self) -> ImageSet:
        """Return the 10,000 clean test images."""
        return self._open_batches("test", _TEST)

    def load_target(self, name: str) -> ImageSet:
        """Return a corruption at one severity, as a view of the published file."""
        corruption, _, severity = name.partition("/")
        path = self._file(f"{corruption}.npy")
        images = open_npy(path)
        labels = self._labels
        shape = (len(labels), SIDE, SIDE, 3)
        if images.dtype != np.uint8 or images.shape != shape:
            raise InputError(f"{path}: expected uint8 {shape} as in labels.npy, found {images.dtype} {images.shape}")
        count = len(labels) // NUM_SEVERITIES
        rows = slice((int(severity) - 1) * count, int(severity) * count)
        return ImageSet(images[rows], labels[rows])

    def _severities(self, *, present: bool) -> tuple[str, ...]:
        parts = [part.name for part in self.parts() if part.role == "target" and part.present == present]
        return tuple(f"{name}/{severity}" for name in parts for severity in range(1, NUM_SEVERITIES + 1))

    def _split(self, images: ImageSet) -> list[NDArray[np.int64]]:
        keys = [str(row) for row in range(len(images))]
        return split_stratified(keys, images.labels.tolist(), [self.held_out / len(images)], seed=0)

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        path = self._file("labels.npy")
        labels = open_npy(path)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or len(labels) % NUM_SEVERITIES:
            expected = f"whole numbers, a multiple of {NUM_SEVERITIES} of them"
            raise InputError(f"{path}: expected {expected}, found {labels.dtype} {labels.shape}")
        if labels.min() < 0 or labels.max() >= len(self.classes):
            raise InputError(f"{path}: labels from {labels.min()} to {labels.max()}; CIFAR-10 has 0 to 9")
        warn_of_count(path, len(labels), NUM_SEVERITIES * NUM_TEST)
        return labels.astype(np.int64)

    def _corruption_part(self, name: str) -> Part:
        for file in (f"{name}.npy", "labels.npy"):
            if not self._file(file).is_file():
                detail = f"no CIFAR-10-C/{file} in {self.root}; try: asrnorm data corrupt cifar10c"
                return Part(name, "target", False, detail)
        return Part(name, "target", True, str(self._file(f"{name}.npy")))

    def _file(self, name: str) -> Path:
        return self.root / "CIFAR-10-C" / name

    def _batch_files(self, names: tuple[str, ...]) -> tuple[Path, ...]:
        for folder, ending in (("cifar-10-batches-bin", ".bin"), ("cifar-10-batches-py", "")):
            files = [find_first(self.root, f"{folder}/{name}{ending}") for name in names]
            if all(files):
                return tuple(path for path in files if path is not None)
        return ()

    def _open_batches(self, split: str, names: tuple[str, ...]) -> ImageSet:
        files = self._batch_files(names)

        def build(writer: EntryWriter) -> None:
            read = read_cifar_binary if files[0].suffix == ".bin" else read_cifar_python
            batches = [read(path) for path in files]
            labels = np.concatenate([labels for _, labels in batches])
            writer.stream("images", (len(labels), SIDE, SIDE, 3), np.uint8, (images for images, _ in batches))
            writer.add("labels", labels)

        fingerprint = {"files": describe_files(files)}
        entry = open_entry(f"cifar10-{split}", fingerprint=fingerprint, build=build, folder=cache_folder(self.root))
        data = ImageSet(entry["images"], np.asarray(entry["labels"]))
        path, published = (files[0].parent, NUM_TRAIN) if split == "train" else (files[0], NUM_TEST)
        warn_of_count(path, len(data), published)
        return data
