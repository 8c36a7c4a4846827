"""What may be changed of a trained network before it is scored again, without training.

Labelled images of new places, scored as far as they can be read.

The images that a finished run is scored on, and whether they are those of its training.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrnorm.core.config import Choice, RunConfig
from asrnorm.core.errors import AsrnormError, InputError, WrongCallError
from asrnorm.core.hashing import PUBLISHED

if TYPE_CHECKING:
    from torch import nn

    from asrnorm.core.results import DomainScore
    from asrnorm.data import Suite
    from asrnorm.training import LoadedRun


def change_norm(loaded: "LoadedRun", config: RunConfig) -> None:
    """Let BN look at the test batch, where that is asked for."""
    if config.norm == loaded.config.norm:
        return
    if (loaded.config.norm.name, config.norm.name) != ("bn", "bn_test"):
        raise InputError(
            f"a trained network keeps its norm: {loaded.config.norm.name!r} cannot become {config.norm.name!r}; "
            "only 'bn' can become 'bn_test'"
        )
    if config.norm.args not in ({}, loaded.config.norm.args):
        raise InputError("bn_test has the options that the run's bn was trained with: leave norm.OPTION out")
    from asrnorm.conversion import convert

    convert(loaded.model, "bn_test", layers="all", **loaded.config.norm.args)


def change_limits(loaded: "LoadedRun", config: RunConfig, suite: "Suite | None") -> None:
    """Confine the learned means to their range on the run's own training images, or set them free.

    Args:
        loaded: the run; its network is changed.
        config: with what was changed.
        suite: that of the training; it is not needed where limits are lifted.
    """
    if config.confine and suite is not None:
        from asrnorm.training.assembly import confine_to_source

        confine_to_source(loaded.model, suite, config)
        return
    from asrnorm.norms import ASRNorm2d

    for layer in loaded.model.modules():
        if isinstance(layer, ASRNorm2d):
            layer.confine(None, None)


def validate_limits(loaded: "LoadedRun", config: RunConfig, suite: "Suite", limit: int) -> dict[str, float]:
    """Return the accuracy on validation images of the source, once limits were set or lifted: what to choose them by.

    Args:
        loaded: the run, its network changed.
        config: with what was changed.
        suite: that of the training.
        limit: images at most, 0 for all.
    """
    from asrnorm.core.distributed import ALONE
    from asrnorm.training.selection import validate

    device = next(loaded.model.parameters()).device
    return validate(loaded.model, suite, replace(config, evaluate_limit=limit), device, ALONE)


def describe_device(model: "nn.Module") -> str:
    """Return where a model lies, a GPU by its name.

    Example:
        >>> from torch import nn
        >>> describe_device(nn.Linear(1, 1))
        'cpu'
    """
    import torch

    device = next(model.parameters()).device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


Report = Callable[["DomainScore"], None]
Watched = Callable[[int], AbstractContextManager[Report]]
"""From the number of places to a function that is told of each score."""


class PlaceScores(NamedTuple):
    """The scores, why other places have none, and the images that cannot be read."""

    scores: list["DomainScore"]
    failed: dict[str, InputError]
    unreadable: list[Path]

    def gaps(self) -> dict[str, list[str]]:
        """Return what was not scored, as `--json` names it."""
        return {"missing": list(self.failed), "unreadable": list(map(str, self.unreadable))}

    def refuse_gaps(self) -> None:
        """End a command whose numbers are not of all that was asked for.

        Raises:
            InputError: a place or an image was not scored.
        """
        if self.failed:
            first, error = next(iter(self.failed.items()))
            count = len(self.failed)
            rest = f" ({count} of {count + len(self.scores)} places)" if count > 1 else ""
            raise InputError(f"{first} was not scored{rest}: {error}")
        if self.unreadable:
            rest = f" and {len(self.unreadable) - 1:,} more" if len(self.unreadable) > 1 else ""
            raise InputError(f"scored without images that cannot be read: {self.unreadable[0]}{rest}; --json names all")


def score_places(loaded: "LoadedRun", data: Path, limit: int, form: dict[str, Any], watched: Watched) -> PlaceScores:
    """Score every place that can be, one by one.

    Args:
        loaded: the run.
        data: a folder or table of images, see `open_places`.
        limit: the most images of a place, 0 for all.
        form: how images are given to the network, as `score_domains` takes it.
        watched: tells how far it is.
    """
    from asrnorm.data.labelled_folder import open_places, part_unreadable
    from asrnorm.evaluation import score_domains

    places = open_places(data, loaded.classes, loaded.suite.image_size)
    found = PlaceScores([], {}, [])
    with watched(len(places)) as report:
        options = {**form, "report": report, "limit": limit}
        for name, images in places.items():
            try:
                try:
                    found.scores.extend(score_domains(loaded.model, {name: images}, **options))
                except InputError:
                    readable, lost = part_unreadable(images)
                    if not lost or not len(readable):
                        raise
                    found.scores.extend(score_domains(loaded.model, {name: readable}, **options))
                    found.unreadable.extend(lost)
            except InputError as error:
                found.failed[name] = error
    return found


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
    from asrnorm.data.image_table import to_nfc

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
        from asrnorm.training.run_folder import refuse_other_source

        refuse_other_source(run / "env.json", own, _OTHERWISE)
    return suite


def find_own_suite(run: Path, loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite that a run was trained on, for what is measured on its source images.

    Where the images lie somewhere else now, `suite.root` says where.

    Raises:
        InputError: the source is missing, or its images are not those of the training.
    """
    from asrnorm.training.run_folder import refuse_other_source

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
    from asrnorm.training.run_folder import read_listing

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
