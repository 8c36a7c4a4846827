"""What `asrnorm evaluate` leaves in the folder of the run itself: further results, and analyses of single images."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from asrnorm.commit import find_commit, shorten_commit
from asrnorm.config import RunConfig, content_hash
from asrnorm.errors import InputError, StorageError, WrongCallError
from asrnorm.results import read_result, write_result
from asrnorm.storage import describe_failure, replacing

if TYPE_CHECKING:
    from asrnorm.evaluation import SuiteScore


def check_name(name: str) -> str:
    """Return the name of an evaluation, which becomes that of a file.

    Raises:
        typer.BadParameter: it could not be one.

    Example:
        >>> check_name("bn_test-16")
        'bn_test-16'
    """
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise typer.BadParameter(f"{name!r}: letters, digits, '-', '_' and '.' only", param_hint="--as")
    return name


def check_free(run: Path, name: str, config: RunConfig) -> None:
    """Refuse a name under which a run's folder holds an evaluation with other settings; a damaged one may be replaced.

    Args:
        run: the folder of a finished run.
        name: of the evaluation.
        config: the run's, with what is to be changed.

    Raises:
        WrongCallError: it holds one.
    """
    path = _path_of(run, name)
    try:
        kept = read_result(path).config_hash
    except InputError:
        return
    if kept != content_hash(config):
        raise WrongCallError(f"--as {name}: {path} was made with other settings; choose another name, or --renew it")


def keep_result(
    run: Path,
    name: str,
    config: RunConfig,
    scores: "SuiteScore",
    attacks: Mapping[str, float],
    seconds: float,
    *,
    edition: str = "",
    validation: Mapping[str, float] | None = None,
    device: str = "",
) -> Path:
    """Write scores as `<run>/evaluations/<name>.json`, a result under the hash of the config they were made with.

    Args:
        run: the folder of a finished run.
        name: of the evaluation.
        config: the run's, with what was changed.
        scores: what came out.
        attacks: accuracy under each, where asked for.
        seconds: that it took.
        edition: of the test images, as their suite tells it.
        validation: accuracy on validation images of the source, where it was measured again.
        device: on which it was scored.

    Raises:
        InputError: the run is not done.
        StorageError: the file cannot be written.
    """
    # What is not measured again is the run's: recipe, seed, commit, parameters, steps, selection.
    result = dataclasses.replace(
        read_result(run / "result.json"),
        config_hash=content_hash(config),
        source=scores.source,
        domains=tuple(scores.domains),
        missing=tuple(scores.missing),
        average_accuracy=scores.average_accuracy,
        adversarial=dict(attacks),
        validation=dict(validation or {}),  # the run's is of the model as it was trained
        wall_seconds=round(seconds, 3),
        # The commit above is that of the training; what scored it may be another.
        origin={"scored": " on ".join(filter(None, (shorten_commit(find_commit()), device)))}
        | ({"edition": edition} if edition else {}),
    )
    path = _path_of(run, name)
    with _folder_of(path):
        write_result(path, result)
    return path


def _path_of(run: Path, name: str) -> Path:
    return run / "evaluations" / f"{name}.json"


def keep_statistics(run: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays as `<run>/analyses/statistics.npz`, which numpy reads without unpickling anything.

    Raises:
        StorageError: the file cannot be written.
    """
    import numpy as np

    path = run / "analyses" / "statistics.npz"
    with _folder_of(path), replacing(path) as temporary:
        np.savez_compressed(temporary, **arrays)
    return path


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    """Make the folder of a file, free of what a killed process left of that file."""
    try:
        path.parent.mkdir(exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*"):
            leftover.unlink(missing_ok=True)
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(describe_failure(error, path)) from None
