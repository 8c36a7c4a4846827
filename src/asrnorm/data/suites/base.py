"""The registry of suites, and what a suite is: a source domain with its splits, and named target domains.

`Suite(*, root=None, ...)` stores its options and touches no file; `parts()` says what is on the disk without decoding
it; `train`, `validation`, `source_test` and `targets[name]` decode on first use and keep the result.
"""

import abc
import logging
import os
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
Data = ImageSet | FileSet

SUITES: Registry[Callable[..., "Suite"]] = Registry("suite")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_log = logging.getLogger(__name__)


class Part(NamedTuple):
    """One domain of a suite on the disk; `detail` says where it was found or, if it is missing, how to get it."""

    name: str
    role: str  # "source" or "target"
    present: bool
    detail: str


class Suite(abc.ABC):
    """A source domain with its splits, and the unseen target domains.

    `root` is the folder with the data sets in their published layouts; `None` is `ASRNORM_DATA`.
    """

    name: str
    mean: tuple[float, float, float] | None = None  # for the trainer; suites do not apply them
    std: tuple[float, float, float] | None = None

    def __init__(self, *, root: str | Path | None = None) -> None:
        try:
            is_path = b"\0" not in os.fsencode(root or "")
        except UnicodeEncodeError:
            is_path = False
        if not is_path:
            raise InputError(f"root {str(root)!r:.80} has a character that no path can have")
        self._root = root
        self._loaded_targets: dict[str, Data] = {}

    @property
    def root(self) -> Path:
        """The folder of the suite's files."""
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
        """Names of the domains to train on, one unless several are mixed."""

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the target domains that are present, in the order of reports."""
        return tuple(part.name for part in self.parts() if part.role == "target" and part.present)

    @abc.abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Return which domains are present and which are missing, from file names alone."""

    @property
    def missing(self) -> tuple[Part, ...]:
        """The missing domains, each with the reason."""
        return tuple(part for part in self.parts() if not part.present)

    @property
    def missing_targets(self) -> tuple[str, ...]:
        """Names of the missing target domains."""
        return tuple(part.name for part in self.missing if part.role == "target")

    @property
    def edition(self) -> str:
        """Which edition of the test images is present, for the record; empty if there is only one."""
        return ""

    @cached_property
    def train(self) -> Data:
        """The images to train on."""
        self.require_source()
        return self.load_train()

    @cached_property
    def validation(self) -> Data | None:
        """Held-out images of the source to select a checkpoint by; `None` if the protocol has none."""
        self.require_source()
        return self.load_validation()

    @cached_property
    def source_test(self) -> Data:
        """Images of the source domain that are not trained on."""
        self.require_source()
        return self.load_source_test()

    @property  # not cached: suite and mapping, each with a reference to the other, would wait for a garbage collection
    def targets(self) -> Mapping[str, Data]:
        """Target domains by name, each decoded on first use."""
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
        """Decode everything that is present, so that later use only opens the cache."""
        _ = self.train, self.validation, self.source_test, *self.targets.values()
        return self

    def check_files(self) -> None:  # noqa: B027
        """Raise `InputError` before a run starts if its evaluation could not read a file; published data pass."""

    def count_source(self) -> int:
        """Return the number of source images that are trained on or held out for validation."""
        return len(self.train) + len(self.validation or ())

    def source_listing(self) -> str:
        """Return a digest of the names of the source's images; empty for published data."""
        return ""

    def source_sizes(self) -> str:
        """Return a digest of the sizes of the source's files, which shows replaced images; empty for published data."""
        return ""

    def source_skipped(self) -> list[str] | None:
        """Return the source's images that were left out because they cannot be read; `None` before it is decoded."""
        return None

    def target_listing(self) -> str:
        """Return a digest of the names and sizes of the targets' images; empty for published data."""
        return ""

    def require_source(self) -> None:
        """Raise `InputError` if the source domain is missing, with how to get it."""
        for part in self.missing:
            if part.role == "source":
                raise InputError(f"suite {self.name!r} lacks its source {part.name}: {part.detail}")


class _Targets(Mapping[str, Data]):
    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._names = suite.target_names
        self._loaded = suite._loaded_targets

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

    def __contains__(self, name: object) -> bool:  # Mapping's own would decode the domain
        return name in self._names

    def _explain(self, name: str) -> str:
        for part in self._suite.missing:
            if name == part.name or name.startswith(f"{part.name}/"):
                return f"suite {self._suite.name!r} lacks its target {name}: {part.detail}"
        return describe_unknown(f"target of suite {self._suite.name!r},", name, self._names)


def create_suite(name: str, **options: Any) -> Suite:
    """Return a suite by its registry name.

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


def choose_domains(
    known: Sequence[str], source: Names, target: Names, *, suite: str, needs_target: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the source and the target domains, out of all `known` ones.

    With sources alone, all other domains are targets (single source); with targets alone, all others are sources (leave
    one out). A single domain is the source if no target is needed.
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
    """Raise `UnknownNameError`, with the nearest known name, if a name is not one of the known domains."""
    known = tuple(known)
    for name in names:
        if name not in known:
            raise UnknownNameError(describe_unknown(f"domain of suite {suite!r},", name, known))


def split_names(names: Names, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return names as a tuple without repetitions, from one string with commas or from a sequence.

    A known domain whose own name has a comma, or a space at an end, is kept whole.

    Example:
        >>> split_names("photo, art,photo"), split_names(None), split_names("Bern, day", ["Bern, day", "dusk"])
        (('photo', 'art'), (), ('Bern, day',))
    """
    if names is None:
        return ()
    words = ((names,) if names in known else names.split(",")) if isinstance(names, str) else names
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(f"domains are names, such as photo or [photo, sketch], not {names!r:.80}")
    return tuple(dict.fromkeys(word if word in known else word.strip() for word in words if word.strip()))


def warn_of_count(path: Path, found: int, published: int) -> None:
    """Warn if a copy of a published set has another number of images, for instance because it was truncated."""
    if found != published:
        _log.warning("%s: %s images, published are %s; results are for these", path, f"{found:,}", f"{published:,}")


def find_first(root: Path, *candidates: str) -> Path | None:
    """Return the first of the paths that is a file below `root`; copies differ in folder names and compression."""
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
