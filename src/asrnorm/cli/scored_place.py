"""Labelled images of new places, scored as far as they can be read."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrnorm.errors import InputError

if TYPE_CHECKING:
    from asrnorm.results import DomainScore
    from asrnorm.training import LoadedRun

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
    from asrnorm.data.place import open_places, part_unreadable
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
