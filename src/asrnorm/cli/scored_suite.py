"""The images that a finished run is scored on, and whether they are those of its training."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from asrnorm.config import Choice, RunConfig
from asrnorm.errors import AsrnormError, InputError, WrongCallError
from asrnorm.fingerprint import PUBLISHED

if TYPE_CHECKING:
    from asrnorm.data import Suite
    from asrnorm.training import LoadedRun

# Options by which a suite parts the images that are scored from those that are trained on.
_SPLITTING = {
    "digits_mini": ("seed",),
    "folder": ("validation", "test", "seed"),
}
_OTHERWISE = "score the images as they are now with --data"


def choose_suite(run: Path, loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite to score a run on: its own, or another with the same classes.

    Raises:
        InputError: images that are gone, other classes, or images of the source that are not those of the training,
            some of which would count as held out.
        WrongCallError: an option that parts the images in another way than the run did.
    """
    from asrnorm.data import SUITES, create_suite
    from asrnorm.data.class_name import to_nfc

    theirs, mine = loaded.config.suite, config.suite
    try:
        if mine != theirs:
            SUITES.check(mine.name, mine.args)
    except InputError as error:
        raise WrongCallError(str(error)) from error
    own_root = str(theirs.args.get("root", ""))
    if mine == theirs and mine.name not in PUBLISHED and own_root and not Path(own_root).exists():
        raise InputError(
            f"{own_root}: the images of the run are no longer there; --set suite.root=DIR says where they are now, "
            "--data DIR scores others"
        )
    # Read at the size of the run: resized to it from another one, images are not what they were in training.
    size = {"size": loaded.suite.image_size} if mine.name == "folder" else {}
    suite: Suite = loaded.suite if mine == theirs else create_suite(mine.name, **{**size, **mine.args})
    own = _at_its_place(loaded, config) if mine.name == theirs.name else None
    if own is not None and _has_its_images(run, theirs, mine, own):
        refuse_other_split(theirs, mine, own.sources, suite.sources)
    if list(map(to_nfc, suite.classes)) != list(map(to_nfc, loaded.classes)):
        raise InputError(
            f"the run knows the classes {_shorten(loaded.classes)}, "
            f"suite {suite.name!r} has {_shorten(suite.classes)}; they must be the same"
        )
    if own is not None and _is_same_root(theirs, mine) and own.source_listing():
        from asrnorm.training.source import refuse_other_source

        refuse_other_source(run / "env.json", own, _OTHERWISE)
    return suite


def find_own_suite(run: Path, loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite that a run was trained on, for what is measured on its source images.

    Where the images lie somewhere else now, `suite.root` says where.

    Raises:
        InputError: the source is missing, or its images are not those of the training.
    """
    from asrnorm.training.source import refuse_other_source

    suite = _at_its_place(loaded, config)
    suite.require_source()
    refuse_other_source(run / "env.json", suite)
    return suite


def refuse_other_split(theirs: Choice, mine: Choice, trained: tuple[str, ...], sources: tuple[str, ...]) -> None:
    """Refuse to hold out other images of a run's own suite than the run did: it was trained on them.

    Args:
        theirs: the suite of the training.
        mine: the one to be scored, of the same images.
        trained: domains that the run was trained on.
        sources: those of the suite to be scored.
    """
    changed = [name for name in _SPLITTING.get(mine.name, ()) if _option(theirs, name) != _option(mine, name)]
    changed += ["source"] if sources != trained else []
    if changed:
        raise WrongCallError(
            f"suite.{changed[0]} decides which images a run is trained on, so it stays as it was; other images are "
            "scored with --data or another --suite"
        )


def _at_its_place(loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite of the training, where its images lie now."""
    from asrnorm.data import create_suite

    theirs, mine = loaded.config.suite, config.suite
    if mine.name == theirs.name and "root" in mine.args and mine.args["root"] != theirs.args.get("root"):
        return create_suite(theirs.name, **{**theirs.args, "root": mine.args["root"]})
    return loaded.suite


def _has_its_images(run: Path, theirs: Choice, mine: Choice, own: "Suite") -> bool:
    """Tell whether the images of the training lie where a suite looks for them."""
    from asrnorm.training.source import read_listing

    if mine.name in PUBLISHED or _is_same_root(theirs, mine):
        return True
    try:
        return own.source_listing() == read_listing(run / "env.json")
    except AsrnormError:  # other domains, for one
        return False


def _is_same_root(theirs: Choice, mine: Choice) -> bool:
    first, second = (one.args.get("root") for one in (theirs, mine))
    return first == second or (bool(first and second) and os.path.realpath(str(first)) == os.path.realpath(str(second)))


def _option(suite: Choice, name: str) -> object:
    from asrnorm.data import SUITES

    return suite.args.get(name, SUITES.options(suite.name)[name].default)


def _shorten(names: tuple[str, ...], most: int = 4) -> str:
    rest = f", ... ({len(names)})" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
