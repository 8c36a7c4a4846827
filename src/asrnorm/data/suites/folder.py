"""A user's own images: any number of domains, one or several to train on, the others to hold up on."""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError
from asrnorm.data.cache import EntryWriter, cache_folder, describe_files, open_entry
from asrnorm.data.folder_listing import (
    collect_classes,
    is_one_domain,
    list_domains,
    list_images,
    list_labeled,
    refuse_links_to_one,
)
from asrnorm.data.image import read_images
from asrnorm.data.image_set import FileSet, ImageSet, concatenate, split_stratified
from asrnorm.data.image_table import Sample, to_nfc
from asrnorm.data.suites.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SUITES,
    Data,
    Names,
    Part,
    Suite,
    check_domains,
    choose_domains,
    split_names,
)

MOST_SIDE = 8192
_ROOT_HINT = (
    "give --set suite.root=FOLDER (in Python root=, for data show --root), a folder <domain>/<class>/<image>, or a "
    ".csv or .jsonl file"
)


class _Index(NamedTuple):
    """What lies in the folder: samples and labels by domain, and the split of each source."""

    classes: tuple[str, ...]
    samples: dict[str, list[Sample]]
    labels: dict[str, NDArray[np.int64]]


@SUITES.register("folder")
class ImageFolder(Suite):
    """Your own images in `root/<domain>/<class>/`, or named by a CSV or JSON Lines file.

    Args:
        root: the folder, the folder of a single domain, or the file with the columns path, label, domain.
        source: the domain to train on; several are mixed.
        target: the domains to hold up on; by default all that are not trained on.
        size: side of the square to which every image is resized, or `(height, width)`.
        validation: share of the source that is held out for the choice of a checkpoint.
        test: share of the source that is held out for its own accuracy; 0 takes the validation images for it.
        seed: of the split, which keeps the balance of classes.
        max_gigabytes: decoded images up to this size are kept in a memory-mapped cache, larger sets are decoded from
            their files at every epoch; `None` is half of the machine's memory.

    Example:
        >>> ImageFolder(root="my_images", source="photo", size=128).image_size
        (128, 128)
    """

    name = "folder"
    mean = IMAGENET_MEAN
    std = IMAGENET_STD

    def __init__(
        self,
        *,
        root: str | Path | None = None,
        source: Names = None,
        target: Names = None,
        size: int | tuple[int, int] = 224,
        validation: float = 0.1,
        test: float = 0.0,
        seed: int = 0,
        max_gigabytes: float | None = None,
    ) -> None:
        super().__init__(root=root)
        height, width = (size, size) if isinstance(size, int) else size
        if not 1 <= min(height, width) <= max(height, width) <= MOST_SIDE:
            raise InputError(f"suite 'folder': size must be from 1 to {MOST_SIDE:,}, not {size}")
        self._size = (int(height), int(width))
        self._source, self._target = source, target
        self._fractions = (validation, test)
        self._seed = seed
        self._max_gigabytes = max_gigabytes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the class folders, in order."""
        return self._index.classes

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width as chosen."""
        return self._size

    @property
    def domains(self) -> tuple[str, ...]:
        """All domains that are there."""
        return tuple(self._index.samples)

    @property
    def sources(self) -> tuple[str, ...]:
        """The domains trained on."""
        return self._roles[0]

    @property
    def target_names(self) -> tuple[str, ...]:
        """The target domains."""
        return self._roles[1]

    def parts(self) -> tuple[Part, ...]:
        """Return the domains with their numbers of images."""
        if self._root is None:
            return (Part("images", "source", False, f"they are your own; {_ROOT_HINT}"),)
        counts = {name: f"{len(samples):,} images in {self.root}" for name, samples in self._index.samples.items()}
        sides = zip(("source", "target"), self._roles, strict=True)
        return tuple(Part(name, role, True, counts[name]) for role, names in sides for name in names)

    def load_train(self) -> Data:
        """Return what is not held out of the sources."""
        return self._open_split(2)

    def load_validation(self) -> Data | None:
        """Return the held-out images of the sources, or nothing where `validation=0`."""
        return self._open_split(0) if self._fractions[0] else None

    def load_source_test(self) -> Data:
        """Return the images held out for the source's own accuracy; the validation images where `test=0`."""
        if self._fractions[1]:
            return self._open_split(1)
        if self.validation is None:
            raise InputError(f"{self.root}: nothing is held out of the source; give validation= or test= a share")
        return self.validation

    def load_target(self, name: str) -> Data:
        """Return all images of a domain."""
        return self._open_domain(name, np.arange(len(self._index.samples[name])))

    def count_source(self) -> int:
        """Return how many images of the sources are trained on or held out for validation, without decoding any."""
        return sum(len(self._split(domain)[part]) for domain in self.sources for part in (0, 2))

    def source_listing(self) -> str:
        """Return a digest of the paths of the source's images below the root, and of their labels."""
        return self._digest(self.sources, lambda sample: sample.label)

    def source_sizes(self) -> str:
        """Return a digest of the sizes of the source's files, each by its path below the root."""
        return self._digest(self.sources, lambda sample: sample.path.stat().st_size)

    def target_listing(self) -> str:
        """Return a digest of the paths of the targets' images below the root, of their labels and sizes."""
        return self._digest(self.target_names, lambda sample: f"{sample.label}\0{_count_bytes(sample.path)}")

    def _digest(self, domains: Sequence[str], read: Callable[[Sample], int | str]) -> str:
        samples = [sample for name in domains for sample in self._index.samples[name]]
        lines = sorted(f"{sample.key}\0{read(sample)}" for sample in samples)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def check_files(self) -> None:
        """Decode all domains into the cache, which the evaluation would do; of a set too large for it, find the files.

        Raises:
            InputError: an image that cannot be read, or nothing is held out of the source.
        """
        shares = zip(("validation", "test"), self._fractions, (self.validation, self.source_test), strict=False)
        for name, share, held in shares:
            if share and held is not None and len(held) == 0:
                raise InputError(
                    f"{self.root}: the classes of the source have too few images for {name}={share:g} to hold one out; "
                    "one is always trained on, so add images"
                )
        self.prepare()
        for data in (self.source_test, *self.targets.values()):
            if isinstance(data, FileSet):
                describe_files(data.paths)

    @cached_property
    def _index(self) -> _Index:
        if self._root is None:
            raise InputError(f"suite 'folder': {_ROOT_HINT}")
        known = list_domains(self.root)
        names = (*known, self.root.name)
        chosen = {*split_names(self._source, names), *split_names(self._target, names)}
        # Names of folders in it are of domains; where none is named, the folders may be the classes of one.
        is_alone = self.root.is_dir() and chosen.isdisjoint(known) and is_one_domain(self.root)
        if is_alone:
            known = (self.root.name,)
        if known:  # of none, the listing says what is expected
            check_domains(known, chosen, suite="folder")
        # A domain that is not used need not have the classes of the others, nor images.
        used = chosen if self._source and self._target else None
        samples = list_labeled(self.root) if is_alone else list_images(self.root, used)
        refuse_links_to_one(self.root, samples)
        classes = collect_classes(samples, self.root)
        if len(classes) < 2:
            raise InputError(
                f"{self.root}: one class ({classes[0]}); a classifier needs at least two: expected "
                "<domain>/<class>/<image>"
            )
        by_domain: dict[str, list[Sample]] = {}
        for sample in samples:
            by_domain.setdefault(sample.domain, []).append(sample)
        numbers = {label: number for number, label in enumerate(classes)}
        labels = {
            domain: np.array([numbers[to_nfc(sample.label)] for sample in own], np.int64)
            for domain, own in by_domain.items()
        }
        return _Index(classes, by_domain, labels)

    @cached_property
    def _roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        known = tuple(self._index.samples)
        return choose_domains(known, self._source, self._target, suite="folder", needs_target=False)

    @cached_property
    def _in_memory(self) -> bool:
        num_images = sum(len(self._index.samples[name]) for names in self._roles for name in names)
        height, width = self._size
        limit = _physical_memory() / 2 if self._max_gigabytes is None else self._max_gigabytes * 2**30
        return num_images * height * width * 3 <= limit

    def _open_split(self, part: int) -> Data:
        sets = []
        for domain in self.sources:
            sets.append(self._open_domain(domain, self._split(domain)[part]))
        images = [data for data in sets if isinstance(data, ImageSet)]
        files = [data for data in sets if isinstance(data, FileSet)]
        if images:
            return concatenate(images)
        paths = tuple(path for data in files for path in data.paths)
        return FileSet(paths, np.concatenate([data.labels for data in files]), self._size)

    def _split(self, domain: str) -> list[NDArray[np.int64]]:
        """Return the rows of a source's validation images, of its test images, and of those that are trained on."""
        keys = [sample.key for sample in self._index.samples[domain]]
        return split_stratified(keys, self._index.labels[domain].tolist(), self._fractions, seed=self._seed)

    def _open_domain(self, domain: str, rows: NDArray[np.int64]) -> Data:
        paths = [sample.path for sample in self._index.samples[domain]]
        labels = self._index.labels[domain]
        if not self._in_memory:
            return FileSet(tuple(paths[row] for row in rows), labels[rows], self._size)

        def build(writer: EntryWriter) -> None:
            writer.stream("images", (len(paths), *self._size, 3), np.uint8, read_images(paths, size=self._size))

        place = hashlib.sha256(f"{self.root}\0{domain}".encode("utf-8", "surrogateescape")).hexdigest()[:12]
        entry = open_entry(
            f"folder-{place}-{self._size[0]}x{self._size[1]}",
            fingerprint={"files": describe_files(paths)},
            build=build,
            folder=cache_folder(),  # never inside the user's own folder
        )
        return ImageSet(entry["images"], labels).take(rows)


def _physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _count_bytes(path: Path) -> int:
    """Bytes of a file, -1 where it is gone: a run may be scored from the cache all the same."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
