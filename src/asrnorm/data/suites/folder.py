"""A user's own images: any number of domains, one or several to train on, the others to test on."""

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, shorten_list
from asrnorm.data.cache import EntryWriter, cache_folder, describe_files, open_entry
from asrnorm.data.class_names import keep_known, rename_classes
from asrnorm.data.folder_listing import (
    check_distinct_files,
    collect_classes,
    is_one_domain,
    list_domains,
    list_images,
    list_one_domain,
)
from asrnorm.data.image import read_images
from asrnorm.data.image_set import FileSet, ImageSet, concatenate, split_stratified
from asrnorm.data.image_table import Sample, group_by_domain, to_file_set, to_nfc
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

MAX_SIDE = 8192
_REACTIONS = ("skip", "refuse")
_MAX_BROKEN = 0.01  # of the images of a domain; one is left out in any case
_log = logging.getLogger(__name__)
_ROOT_HINT = "give --data FOLDER (in Python root=), a folder <domain>/<class>/<image>, or a .csv or .jsonl file"


@SUITES.register("folder")
class ImageFolder(Suite):
    """Your own images in `root/<domain>/<class>/`, or named by a CSV or JSON Lines file.

    Args:
        root: the folder, the folder of a single domain, or the file with the columns path, label, domain.
        source: the domain to train on; several are mixed.
        target: the domains to test on; by default all others.
        size: side of the square to which every image is resized, or `(height, width)`.
        validation: fraction of the source that is held out to select a checkpoint.
        test: fraction of the source that is held out for its own accuracy; 0 uses the validation images.
        seed: of the split, which keeps the balance of classes.
        max_gigabytes: decoded images up to this size are kept in a memory-mapped cache, larger sets are decoded from
            their files at every epoch; `None` is half of the machine's memory.
        broken: `"skip"` leaves out images that cannot be read, up to 1 % of a domain; `"refuse"` stops at the first.
        unknown: `"skip"` leaves out images of a target whose class the source does not have; `"refuse"` stops.
        aliases: a YAML file of class names that mean another one (`asrnorm.data.class_names.rename_classes`).
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
        broken: str = "skip",
        unknown: str = "skip",
        aliases: str | Path | None = None,
    ) -> None:
        super().__init__(root=root)
        for option, value in (("broken", broken), ("unknown", unknown)):
            if value not in _REACTIONS:
                raise InputError(f"suite 'folder': {option} must be {' or '.join(_REACTIONS)}, not {value!r}")
        self._broken, self._unknown = broken, unknown
        self._aliases = None if aliases is None else Path(aliases).expanduser().absolute()
        self._skipped: dict[str, NDArray[np.int64]] = {}
        height, width = (size, size) if isinstance(size, int) else size
        if not 1 <= min(height, width) <= max(height, width) <= MAX_SIDE:
            raise InputError(f"suite 'folder': size must be from 1 to {MAX_SIDE:,}, not {size}")
        self._size = (int(height), int(width))
        self._source, self._target = source, target
        self._fractions = (validation, test)
        self._seed = seed
        self._max_gigabytes = max_gigabytes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the class folders, in order."""
        return self._classes_and_samples[0]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width as chosen."""
        return self._size

    @property
    def domains(self) -> tuple[str, ...]:
        """All domains in the folder."""
        return tuple(self._samples)

    @property
    def sources(self) -> tuple[str, ...]:
        """The domains to train on."""
        return self._roles[0]

    @property
    def target_names(self) -> tuple[str, ...]:
        """The target domains."""
        return self._roles[1]

    def parts(self) -> tuple[Part, ...]:
        """Return the domains with their numbers of images."""
        if self._root is None:
            return (Part("images", "source", False, f"they are your own; {_ROOT_HINT}"),)
        counts = {name: f"{len(samples):,} images in {self.root}" for name, samples in self._samples.items()}
        sides = zip(("source", "target"), self._roles, strict=True)
        return tuple(Part(name, role, True, counts[name]) for role, names in sides for name in names)

    def load_train(self) -> Data:
        """Return the images of the sources that are not held out."""
        return self._open_split(2)

    def load_validation(self) -> Data | None:
        """Return the held-out images of the sources, or nothing if `validation=0`."""
        return self._open_split(0) if self._fractions[0] else None

    def load_source_test(self) -> Data:
        """Return the images held out for the source's own accuracy; the validation images if `test=0`."""
        if self._fractions[1]:
            return self._open_split(1)
        if self.validation is None:
            raise InputError(
                f"{self.root}: nothing is held out of the source; set validation= or test= to a fraction above 0"
            )
        return self.validation

    def load_target(self, name: str) -> Data:
        """Return all images of a domain."""
        return self._open_domain(name, np.arange(len(self._samples[name])))

    def count_source(self) -> int:
        """Return the number of source images that are trained on or held out for validation, without decoding any."""
        return sum(len(self._split(domain)[part]) for domain in self.sources for part in (0, 2))

    def source_listing(self) -> str:
        """Return a digest of the paths of the source's images below the root, and of their labels."""
        return self._digest(self.sources, lambda sample: sample.label)

    def source_sizes(self) -> str:
        """Return a digest of the sizes of the source's files, each by its path below the root."""
        return self._digest(self.sources, lambda sample: _count_bytes(sample.path))

    def source_skipped(self) -> list[str] | None:
        """Return the paths below the root of the source's images that were left out; `None` before it is decoded."""
        if not all(domain in self._skipped for domain in self.sources):
            return None
        return [self._samples[domain][row].key for domain in self.sources for row in self._skipped[domain]]

    def target_listing(self) -> str:
        """Return a digest of the paths of the targets' images below the root, of their labels and sizes."""
        return self._digest(self.target_names, lambda sample: f"{sample.label}\0{_count_bytes(sample.path)}")

    def _digest(self, domains: Sequence[str], read: Callable[[Sample], int | str]) -> str:
        samples = [sample for name in domains for sample in self._samples[name]]
        lines = sorted(f"{sample.key}\0{read(sample)}" for sample in samples)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def check_files(self) -> None:
        """Decode all domains into the cache, as evaluation would; of a set too large for it, check the files."""
        held_out = zip(("validation", "test"), self._fractions, (self.validation, self.source_test), strict=False)
        for name, fraction, images in held_out:
            if fraction and images is not None and len(images) == 0:
                raise InputError(
                    f"{self.root}: the classes of the source have too few images for {name}={fraction:g} to hold one "
                    "out; one is always trained on, so add images"
                )
        self.prepare()
        for data in (self.source_test, *self.targets.values()):
            if isinstance(data, FileSet) and self._broken == "refuse":
                describe_files(data.paths)

    @property
    def _samples(self) -> dict[str, list[Sample]]:
        """The images of each domain."""
        return self._classes_and_samples[1]

    @cached_property
    def _classes_and_samples(self) -> tuple[tuple[str, ...], dict[str, list[Sample]]]:
        if self._root is None:
            raise InputError(f"suite 'folder': {_ROOT_HINT}")
        known = list_domains(self.root)
        names = (*known, self.root.name)
        chosen = {*split_names(self._source, names), *split_names(self._target, names)}
        # A chosen folder is a domain; if none is chosen, the folders may be the classes of one domain.
        is_alone = self.root.is_dir() and chosen.isdisjoint(known) and is_one_domain(self.root)
        if is_alone:
            known = (self.root.name,)
        if known:  # otherwise the listing below says what is expected
            check_domains(known, chosen, suite="folder")
        # A domain that is not used need not have the classes of the others, nor images.
        used = chosen if self._source and self._target else None
        sources = set(split_names(self._source, names)) or set(known) - set(split_names(self._target, names))
        targets = set(known) - sources
        samples = list_one_domain(self.root) if is_alone else list_images(self.root, used, skip_empty=targets)
        samples = rename_classes(samples, self._aliases, known)
        check_distinct_files(self.root, samples)
        domains = group_by_domain(samples)
        if chosen:  # first of all, because the classes are those of the sources
            self._choose(domains)
        try:
            classes = collect_classes(samples, self.root, sources)
        except InputError:
            self._choose(domains)
            raise
        for name in (name for name in domains if name in targets):
            advice = (
                "say what the source calls them, --set suite.aliases=FILE, or choose domains, --set suite.target=NAME"
            )
            domains[name] = keep_known(domains[name], classes, self.root, unknown=self._unknown, advice=advice)
        if len(classes) < 2:
            raise InputError(
                f"{self.root}: one class ({classes[0]}); a classifier needs at least two: expected "
                "<domain>/<class>/<image>"
            )
        return classes, domains

    @cached_property
    def _roles(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._choose(self.domains)

    def _choose(self, domains: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return choose_domains(tuple(domains), self._source, self._target, suite="folder", needs_target=False)

    @cached_property
    def _in_memory(self) -> bool:
        num_images = sum(len(self._samples[name]) for names in self._roles for name in names)
        height, width = self._size
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = memory / 2 if self._max_gigabytes is None else self._max_gigabytes * 2**30
        return num_images * height * width * 3 <= limit

    def _split(self, domain: str) -> list[NDArray[np.int64]]:
        """Return the rows of a source's validation images, of its test images, and of the others."""
        keys, labels = zip(*((sample.key, to_nfc(sample.label)) for sample in self._samples[domain]), strict=True)
        return split_stratified(keys, labels, self._fractions, seed=self._seed)

    def _open_split(self, part: int) -> Data:
        return concatenate([self._open_domain(domain, self._split(domain)[part]) for domain in self.sources])

    def _open_domain(self, domain: str, rows: NDArray[np.int64]) -> Data:
        files = to_file_set(self._samples[domain], self.classes, self._size)
        if not self._in_memory and self._broken == "refuse":
            return files.take(rows)
        digest = hashlib.sha256(f"{self.root}\0{domain}".encode("utf-8", "surrogateescape")).hexdigest()[:12]
        entry = open_entry(
            f"folder-{digest}-{f'{self._size[0]}x{self._size[1]}' if self._in_memory else 'broken'}",
            fingerprint={"files": describe_files(files.paths, may_lack=self._broken == "skip")},
            build=lambda writer: self._decode(writer, domain, files),
            folder=cache_folder(),  # never inside the user's own folder
        )
        broken = entry.get("broken", np.empty(0, np.int64))
        if len(broken) and self._broken == "refuse":
            files.read(broken[0])  # raises
        if len(broken) and domain not in self._skipped:
            count = f"{len(broken):,} of {len(files):,} images of {domain}"
            _log.warning("%s: left out %s that cannot be read: %s", self.root, count, self._name(domain, broken))
        self._skipped[domain] = broken
        rows = rows[~np.isin(rows, broken)]
        return ImageSet(entry["images"], files.labels).take(rows) if self._in_memory else files.take(rows)

    def _decode(self, writer: EntryWriter, domain: str, files: FileSet) -> None:
        """Write the images of a domain, black where one cannot be read, and the rows of these; see `_open_domain`."""
        found: list[int] = []
        blocks = read_images(files.paths, size=self._size, broken=None if self._broken == "refuse" else found)
        if self._in_memory:
            writer.stream("images", (len(files), *self._size, 3), np.uint8, blocks)
        else:
            deque(blocks, maxlen=0)
        broken = sorted(found)
        if len(broken) > max(1, _MAX_BROKEN * len(files)):
            try:
                files.read(broken[0])
            except InputError as error:
                raise InputError(
                    f"{self.root}: {len(broken):,} of {len(files):,} images of {domain} cannot be read, more than 1 %: "
                    f"{self._name(domain, broken)}; repair or remove them ({error})"
                ) from None
        if broken or not self._in_memory:
            writer.add("broken", np.array(broken, np.int64))

    def _name(self, domain: str, rows: Iterable[int]) -> str:
        return shorten_list([self._samples[domain][row].key for row in rows])


def _count_bytes(path: Path) -> int:
    """Return the size of a file, -1 if it is gone: a run may still be scored from the cache."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
