"""Which domains are trained on and which are held out, from what the user names.

The registry of suites and what a suite is: a source domain, its splits, and named target domains.

The contract: `Suite(*, root=None, ...)` stores its options and touches no file; `parts()` says what lies on the disk
without decoding it; `train`, `validation`, `source_test` and `targets[name]` decode on first use and keep the result.
"""

import abc
import logging
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from asrnorm.core.errors import InputError, UnknownNameError, WrongCallError, describe_unknown
from asrnorm.core.registry import Registry
from asrnorm.core.settings import data_folder
from asrnorm.data.image_set import FileSet, ImageSet

Names = str | Sequence[str] | None


def choose_domains(
    known: Sequence[str], source: Names, target: Names, *, suite: str, needs_target: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the source and the target domains.

    One source and no target: all others are targets (single source). One target and no source: all others are sources
    (leave one out). Both: as named. Where there is a single domain and no target is needed, it is the source.

    Args:
        known: the domains there are, in order.
        source: one name, several, or several with commas between.
        target: likewise.
        suite: the suite's name, for messages.
        needs_target: refuse a choice that leaves no target.

    Raises:
        UnknownNameError: a domain that is not known.
        WrongCallError: nothing is chosen, nothing is left, or a domain is on both sides.

    Example:
        >>> choose_domains(["art", "photo", "sketch"], None, "photo", suite="pacs")
        (('art', 'sketch'), ('photo',))
    """
    sources, targets = split_names(source, known), split_names(target, known)
    check_domains(known, (*sources, *targets), suite=suite)
    if len(known) == 1 and not targets and not needs_target:
        return tuple(known), ()
    if not sources and not targets:
        raise WrongCallError(
            f"suite {suite!r}: choose what to train on among {', '.join(known)}: --source NAME (in Python source=)"
        )
    if both := sorted(set(sources) & set(targets)):
        raise WrongCallError(f"suite {suite!r}: {', '.join(both)} cannot be source and target at once")
    chosen_sources = sources or tuple(name for name in known if name not in targets)
    chosen_targets = targets or tuple(name for name in known if name not in sources)
    if not chosen_sources or (needs_target and not chosen_targets):
        side = "source" if not chosen_sources else "target"
        raise WrongCallError(f"suite {suite!r}: no {side} domain is left of {', '.join(known)}")
    return chosen_sources, chosen_targets


def check_domains(known: Iterable[str], names: Iterable[str], *, suite: str) -> None:
    """Refuse names of domains that are not known.

    Raises:
        UnknownNameError: with the nearest known name and all of them.

    Example:
        >>> check_domains(["dawn", "dusk"], ["dsk"], suite="folder")
        Traceback (most recent call last):
        asrnorm.core.errors.UnknownNameError: unknown domain of suite 'folder', 'dsk'; did you mean 'dusk'? ...
    """
    there = tuple(known)
    for name in names:
        if name not in there:
            raise UnknownNameError(describe_unknown(f"domain of suite {suite!r},", name, there))


def split_names(names: Names, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return names as a tuple without repetitions, from one string with commas or from a sequence.

    Args:
        names: what the user wrote.
        known: the domains there are; one whose own name has a comma, or a space at an end, is taken whole.

    Example:
        >>> split_names("photo, art,photo"), split_names(None), split_names("Bern, day", ["Bern, day", "dusk"])
        (('photo', 'art'), (), ('Bern, day',))
    """
    if names is None:
        return ()
    words = ((names,) if names in known else names.split(",")) if isinstance(names, str) else names
    return tuple(dict.fromkeys(word if word in known else word.strip() for word in words if word.strip()))


SUITES: Registry[Callable[..., "Suite"]] = Registry("suite")

Data = ImageSet | FileSet

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


_log = logging.getLogger(__name__)


class Part(NamedTuple):
    """One piece of a suite as it lies on the disk.

    `role` is `source` or `target`; `detail` says where the piece was found or, where it is missing, how to get it.
    """

    name: str
    role: str
    present: bool
    detail: str


class Suite(abc.ABC):
    """A source domain with its splits and the unseen domains to hold up on.

    Args:
        root: the folder with the data sets in their published layouts; `None` is `ASRNORM_DATA`.
    """

    name: str
    mean: tuple[float, float, float] | None = None  # recorded for the trainer; suites never apply them
    std: tuple[float, float, float] | None = None

    def __init__(self, *, root: str | Path | None = None) -> None:
        self._root = root

    @property
    def root(self) -> Path:
        """The folder in which the suite looks for its files."""
        return data_folder() if self._root is None else Path(self._root).expanduser().absolute()

    @property
    @abc.abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into them."""

    @property
    @abc.abstractmethod
    def image_size(self) -> tuple[int, int]:
        """Height and width of every image."""

    @property
    @abc.abstractmethod
    def sources(self) -> tuple[str, ...]:
        """Names of the domains trained on, one unless several are mixed."""

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the target domains that are present, in reporting order: that of `parts()`, unless overridden."""
        return tuple(part.name for part in self.parts() if part.role == "target" and part.present)

    @abc.abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Return what is there and what is missing, from file names alone."""

    @property
    def missing(self) -> tuple[Part, ...]:
        """The pieces that are not there, each with the reason."""
        return tuple(part for part in self.parts() if not part.present)

    @property
    def missing_targets(self) -> tuple[str, ...]:
        """The targets that are not there, by the names they would have."""
        return tuple(part.name for part in self.missing if part.role == "target")

    @property
    def edition(self) -> str:
        """Which of several editions of the test images is there, for the record; empty where there is but one."""
        return ""

    @cached_property
    def train(self) -> Data:
        """The images to train on."""
        self.require_source()
        return self.load_train()

    @cached_property
    def validation(self) -> Data | None:
        """Held-out images of the source, for the choice of a checkpoint; `None` where the protocol has none."""
        self.require_source()
        return self.load_validation()

    @cached_property
    def source_test(self) -> Data:
        """Images of the source domain that were not trained on."""
        self.require_source()
        return self.load_source_test()

    @cached_property
    def targets(self) -> Mapping[str, Data]:
        """Target domains by name, each decoded when first asked for."""
        return _Targets(self)

    @abc.abstractmethod
    def load_train(self) -> Data:
        """Decode the training images; `train` calls this once."""

    @abc.abstractmethod
    def load_validation(self) -> Data | None:
        """Decode the validation images; `validation` calls this once."""

    @abc.abstractmethod
    def load_source_test(self) -> Data:
        """Decode the test images of the source; `source_test` calls this once."""

    @abc.abstractmethod
    def load_target(self, name: str) -> Data:
        """Decode one of `target_names`; `targets[name]` calls this once."""

    def prepare(self) -> Self:
        """Decode everything that is present, so that later use only opens the cache.

        Raises:
            InputError: the source is missing, or a file cannot be read.
        """
        _ = self.train, self.validation, self.source_test
        for name in self.targets:
            _ = self.targets[name]
        return self

    def check_files(self) -> None:  # noqa: B027
        """Refuse, before a run starts, files that its evaluation could not read; nothing is done for published data.

        Raises:
            InputError: with the file.
        """

    def count_source(self) -> int:
        """Return how many images of the source are trained on or held out for validation."""
        return len(self.train) + len(self.validation or ())

    def source_listing(self) -> str:
        """Return a digest of the names of the source's images; empty where the data set is a published one."""
        return ""

    def source_sizes(self) -> str:
        """Return a digest of the sizes of the source's files, which tell images that were put in place of others."""
        return ""

    def target_listing(self) -> str:
        """Return a digest of the names and sizes of the targets' images; empty where the data set is published."""
        return ""

    def require_source(self) -> None:
        """Refuse to go on without the source domain.

        Raises:
            InputError: with what is missing and how to get it.
        """
        for part in self.missing:
            if part.role == "source":
                raise InputError(f"suite {self.name!r} lacks its source {part.name}: {part.detail}")


class _Targets(Mapping[str, Data]):
    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._names = suite.target_names
        self._loaded: dict[str, Data] = {}

    def __getitem__(self, name: str) -> Data:
        if name not in self._names:
            raise UnknownNameError(self._explain(name))
        if name not in self._loaded:
            self._loaded[name] = self._suite.load_target(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:  # Mapping's own would decode the domain to find out
        return name in self._names

    def _explain(self, name: str) -> str:
        for part in self._suite.missing:
            if name == part.name or name.startswith(f"{part.name}/"):
                return f"suite {self._suite.name!r} lacks its target {name}: {part.detail}"
        return describe_unknown(f"target of suite {self._suite.name!r},", name, self._names)


def create_suite(name: str, **options: Any) -> Suite:
    """Return a suite by its registry name; a wrong name or option is answered with the nearest right one.

    Example:
        >>> create_suite("digits", subset="ada").classes[:3]
        ('0', '1', '2')
    """
    SUITES.check(name, options)
    return SUITES[name](**options)


def list_suites() -> tuple[str, ...]:
    """Return the names of all suites.

    Example:
        >>> "digits" in list_suites()
        True
    """
    return SUITES.names()


def note_count(place: Path, found: int, published: int) -> None:
    """Say where a published set is here with another number of images: cut short, say, which no reader can tell.

    Args:
        place: its file.
        found: images in it.
        published: as many as there should be.
    """
    if found != published:
        _log.warning("%s: %s images, %s are published; numbers will be of these", place, f"{found:,}", f"{published:,}")


def find_first(root: Path, *candidates: str) -> Path | None:
    """Return the first of the relative paths that is a file under `root`, or `None`.

    Public copies of one data set differ in folder names and compression; the published name comes first. Some unpack a
    file into a folder of nearly its name.

    Example:
        >>> find_first(Path("/"), "no-such-file", ".") is None
        True
    """
    for candidate in candidates:
        path = root / candidate
        try:
            if stat.S_ISREG(path.stat().st_mode):
                return path
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; check its permissions") from None
    return None
