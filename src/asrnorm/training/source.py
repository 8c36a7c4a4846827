"""Whether a run's images and weights are those that it was begun with: `env.json` keeps what they are known by."""

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asrnorm.config import RunConfig
from asrnorm.data import Suite, create_suite
from asrnorm.data.class_name import to_nfc
from asrnorm.data.fetch.weight_file import find_weights
from asrnorm.errors import AsrnormError, InputError

START_OVER = "start over with --fresh"

logger = logging.getLogger("asrnorm")


def describe_source(suite: Suite) -> dict[str, Any]:
    """Return what a run's source is known by: classes, number of images, and digests of their names and sizes."""
    return {
        "classes": list(suite.classes),
        "images": suite.count_source(),
        "listing": suite.source_listing(),
        "sizes": suite.source_sizes(),
    }


def refuse_other_source(path: Path, suite: Suite, otherwise: str = START_OVER) -> dict[str, Any]:
    """Refuse a suite whose source is not the one that a run was begun with, and return what the source is known by.

    Arguments and errors are those of `refuse_other_data`.
    """
    known = describe_source(suite)
    refuse_other_data(path, known["classes"], known["images"], known["listing"], known["sizes"], otherwise)
    return known


def refuse_other_start(path: Path, suite: Suite, config: RunConfig) -> dict[str, Any]:
    """Refuse another source or other weights than a run was begun with; return what they and the targets are known by.

    Raises:
        InputError: as `refuse_other_data`, or the file of weights has another content, or is not there.
    """
    known = refuse_other_source(path, suite) | {"targets": suite.target_listing()}
    return known if config.weights is None else known | {"weights": _refuse_other_weights(path, config.weights)}


def refuse_changed_images(path: Path, config: RunConfig) -> None:
    """Refuse the result of a finished run whose own images or weights are others now; gone, they change nothing.

    Other images of targets change no weight: they are told of.

    Args:
        path: `env.json` of the run.
        config: of the run.

    Raises:
        InputError: other classes, other images of the source, or other weights to start from.
    """
    if (suite := _find_own_images(config)) is not None:
        refuse_other_source(path, suite)
        if read_last(path).get("targets", suite.target_listing()) != suite.target_listing():
            logger.warning(
                "%s: other target images are there than the run was scored on; asrnorm evaluate scores them",
                path.parent,
            )
    if config.weights is not None and _is_there(config.weights):
        _refuse_other_weights(path, config.weights)


def read_last(path: Path) -> dict[str, Any]:
    """Return what `env.json` says of a run as it was gone on with last; nothing where it cannot be read."""
    try:
        first = json.loads(path.read_text())
        return dict(first) | {key: value for part in first.get("resumed", ()) for key, value in part.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_there(weights: str) -> bool:
    try:
        return find_weights(weights).is_file()
    except InputError:
        return False


def _refuse_other_weights(path: Path, weights: str) -> str:
    """Return the digest of a file of weights, if it is the one that a run was begun with."""
    file = find_weights(weights)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()[:16]
    if read_last(path).get("weights", digest) != digest:
        raise InputError(
            f"{path.parent}: the run was begun with other weights than {file} has now; bring back those that it was "
            f"begun with, or {START_OVER}"
        )
    return digest


def has_other_images(config: RunConfig, listing: str) -> bool:
    """Tell whether images of one's own are there, and of other names than a kept result was made with.

    Args:
        config: of the run.
        listing: the digest of names that is kept with the result; nothing, where it was kept before such were.
    """
    suite = _find_own_images(config)
    return bool(listing) and suite is not None and suite.source_listing() != listing


def _find_own_images(config: RunConfig) -> Suite | None:
    """Return a run's suite where its images are there, and are no published ones, the same wherever they lie."""
    try:
        suite = create_suite(config.suite.name, **config.suite.args)
        return suite if suite.source_listing() else None
    except AsrnormError:  # no folder, no such domain, no images
        return None


def read_listing(path: Path) -> str | None:
    """Return the digest of names that `env.json` keeps, `None` where it has none or cannot be read."""
    try:
        found = json.loads(path.read_text())["listing"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(found) or None


def refuse_other_data(
    path: Path, classes: Sequence[str], num_images: int, listing: str = "", sizes: str = "", otherwise: str = START_OVER
) -> None:
    """Refuse a run whose images are others now.

    Other classes: its outputs would stand for the wrong ones. Other images: what is held out would move, and images be
    trained on that the first part of the run was chosen by.

    Args:
        path: `env.json` of the run.
        classes: of the suite as it is now.
        num_images: of the source, held-out ones included.
        listing: what `Suite.source_listing` returns.
        sizes: what `Suite.source_sizes` returns.
        otherwise: what to do, but for bringing the images back.

    Raises:
        InputError: `env.json` names other classes, these in another order, another number of source images, or as many
            of other names or sizes.
    """
    try:
        begun = json.loads(path.read_text())
        before, count = list(begun["classes"]), int(begun.get("images", num_images))
        named, sized = begun.get("listing", listing), begun.get("sizes", sizes)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if [to_nfc(str(name)) for name in before] != list(map(to_nfc, classes)):
        gone = ", ".join(str(name) for name in before if name not in classes) or "none"
        new = ", ".join(name for name in classes if name not in before) or "none"
        raise InputError(f"{path.parent}: the run was begun with other classes (gone: {gone}; new: {new}); {otherwise}")
    others = f"{count:,} images of the source, there are {num_images:,} now" if count != num_images else ""
    if not others and named != listing:
        others = f"other images of the source: there are {num_images:,} as before, but not of the same names"
    if not others and sized != sizes:
        others = f"other images of the source: there are {num_images:,} of the same names, but other files"
    if others:
        raise InputError(
            f"{path.parent}: the run was begun with {others}; bring back those that it was begun with, or {otherwise}"
        )
