"""PACS: photographs, art, cartoons and sketches of seven classes.

Li et al., 2017. The published lists split each domain into train and crossval; its test list names all of it. Either
one domain is the source and the other three are targets (single source), or three are mixed and one is the target
(leave one out).
"""

from pathlib import Path

import numpy as np

from asrnorm.core.errors import InputError
from asrnorm.data.cache import cache_folder, describe_files, open_entry
from asrnorm.data.download.content import PACS_CLASSES
from asrnorm.data.image_set import ImageSet, balanced_subset, concatenate
from asrnorm.data.readers import read_listing
from asrnorm.data.suites.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SUITES,
    Names,
    Part,
    Suite,
    choose_domains,
    warn_of_count,
)

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
SIZE = (227, 227)
SPLITS = ("train", "crossval", "test")

# Images that the lists of a domain name, in the order of SPLITS
_PUBLISHED = {
    "photo": (1_499, 171, 1_670),
    "art_painting": (1_840, 208, 2_048),
    "cartoon": (2_107, 237, 2_344),
    "sketch": (3_531, 398, 3_929),
}

_FOLDERS = ("PACS", "PACS/kfold", "pacs", "pacs/kfold", "kfold")
_LISTS = ("splits", "../splits", "Train val splits and h5py files pre-read", ".", "..")


@SUITES.register("pacs")
class PACS(Suite):
    """One or several PACS domains as source, the others as targets; 227x227 RGB.

    Args:
        root: the data folder; `None` is `ASRNORM_DATA`.
        source: the domain to train on, `photo` unless `target` is given; several are mixed, without domain labels.
        target: the domains to test on; by default all others.
        limit: train on at most this many images of each source, equally many of each class; 0 takes all.

    Example:
        >>> PACS(target="photo").sources
        ('art_painting', 'cartoon', 'sketch')
    """

    name = "pacs"
    classes = PACS_CLASSES
    image_size = SIZE
    mean = IMAGENET_MEAN
    std = IMAGENET_STD

    def __init__(
        self, *, root: str | Path | None = None, source: Names = None, target: Names = None, limit: int = 0
    ) -> None:
        super().__init__(root=root)
        if limit < 0:
            raise InputError(f"limit of suite 'pacs' must be at least 0, not {limit:,}")
        self.limit = limit
        if source is None and target is None:
            source = "photo"
        self._sources, self._targets = choose_domains(DOMAINS, source, target, suite="pacs")
        self._sets: dict[str, dict[str, ImageSet]] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """The domains to train on."""
        return self._sources

    def parts(self) -> tuple[Part, ...]:
        """Return which domains are present, from file names alone."""
        roles = [(name, "source") for name in self._sources] + [(name, "target") for name in self._targets]
        return tuple(self._part(name, role) for name, role in roles)

    def load_train(self) -> ImageSet:
        """Return the train lists of the sources, or as many of their images as `limit` says."""
        lists = [self._open_domain(name)["train"] for name in self._sources]
        return concatenate([one.take(balanced_subset(one.labels, self.limit)) if self.limit else one for one in lists])

    def load_validation(self) -> ImageSet:
        """Return the crossval lists of the sources."""
        return concatenate([self._open_domain(name)["crossval"] for name in self._sources])

    def load_source_test(self) -> ImageSet:
        """Return the crossval lists of the sources: the published test lists contain the training images."""
        validation = self.validation
        assert isinstance(validation, ImageSet)
        return validation

    def load_target(self, name: str) -> ImageSet:
        """Return all images of a domain, which is what its test list names."""
        return self._open_domain(name)["test"]

    def _part(self, name: str, role: str) -> Part:
        if found := self._find(name):
            return Part(name, role, True, str(found[0] / name))
        files = f"PACS/{name} with PACS/splits/{name}_{{train,crossval,test}}_kfold.txt"
        return Part(name, role, False, f"no {files} in {self.root}; try: asrnorm data fetch pacs")

    def _find(self, domain: str) -> tuple[Path, Path] | None:
        """Return the folder that the lists' paths are relative to, and the folder of the lists."""
        for folder in (self.root / name for name in _FOLDERS):
            for lists in (folder / name for name in _LISTS):
                listings = (lists / _list_name(domain, split) for split in SPLITS)
                if (folder / domain).is_dir() and all(listing.is_file() for listing in listings):
                    return folder, lists
        return None

    def _open_domain(self, domain: str) -> dict[str, ImageSet]:
        """Return the three lists of a domain; the cache has train and crossval in sequence, so each is a view of it."""
        if domain in self._sets:
            return self._sets[domain]
        found = self._find(domain)
        assert found is not None, "a domain that parts() reports as present"
        folder, lists = found
        entries = {split: read_listing(lists / _list_name(domain, split), labels=range(1, 8)) for split in SPLITS}
        for split, published in zip(SPLITS, _PUBLISHED[domain], strict=True):
            warn_of_count(lists / _list_name(domain, split), len(entries[split]), published)
        named = [entry for split in SPLITS for entry in entries[split]]
        rows = {name: row for row, name in enumerate(dict.fromkeys(name for name, _ in named))}
        paths = [folder / name for name in rows]
        if absent := [path for path in paths if not path.is_file()]:
            missing = f"{len(absent):,} of the {len(paths):,} images are missing, the first is {absent[0]}"
            raise InputError(f"{lists / _list_name(domain, 'test')}: {missing}; fetch PACS again")
        entry = open_entry(
            f"pacs-{domain}",
            fingerprint={"files": describe_files(paths), "size": SIZE},
            build=lambda writer: writer.decode(paths, SIZE),
            folder=cache_folder(self.root),
        )
        labels: dict[str, int] = {}
        for name, label in named:
            if labels.setdefault(name, label) != label:
                raise InputError(f"{lists}: {name} has the labels {labels[name]} and {label} in different lists")
        images = ImageSet(entry["images"], np.array(list(labels.values()), np.int64) - 1)
        picked = {split: [rows[name] for name, _ in entries[split]] for split in SPLITS}
        picked["test"].sort()  # in the order of the cache, so that it is a view of it
        self._sets[domain] = {split: images.take(picked[split]) for split in SPLITS}
        return self._sets[domain]


def _list_name(domain: str, split: str) -> str:
    return f"{domain}_{split}_kfold.txt"
