"""One run, from config to result, that resumes after any interruption."""

from pathlib import Path

from asrnorm.core.config import RunConfig
from asrnorm.core.results import RunResult
from asrnorm.training.run import LoadedRun as LoadedRun
from asrnorm.training.run import load_run as load_run
from asrnorm.training.run import run as run
from asrnorm.training.track import TRACKERS as TRACKERS
from asrnorm.training.track import Track as Track
from asrnorm.training.track import Tracker as Tracker
from asrnorm.training.trackers import Tracked


def train(config: RunConfig, *, out: str | Path | None = None, fresh: bool = False, track: Tracked = None) -> RunResult:
    """Train one run, evaluate it on every domain and return the result; a run that was stopped resumes.

    Args:
        config: a recipe's, such as `asrnorm.recipe("pacs.rsc_asr", source="photo", seed=3)`.
        out: the run's folder; `runs/<recipe>--s<seed>--<hash>` if `None`.
        fresh: start over, and remove what an earlier attempt left in the folder.
        track: where the numbers go besides `log.jsonl`: `"tensorboard"`, `"csv"`, `"mlflow"`, `"wandb"`, a `Tracker`,
            or several; `None` is TensorBoard where it is installed. It changes no number, and no hash.

    Raises:
        UnknownNameError: the config, or `track`, has a name that no registry knows.
        MissingDependencyError: the library of a tracker is not installed.
        InputError: data is missing, or the folder holds another run.
        DivergenceError: a loss is not finite.
        InterruptedRunError: Ctrl-C or SIGTERM, after a checkpoint.
        StorageError: the disk is full, or the folder cannot be written.

    Example:
        >>> from asrnorm.recipes import recipe
        >>> train(recipe("digits_mini.rsda_asr", **{"method.intervals": 10}))
        Traceback (most recent call last):
        asrnorm.core.errors.UnknownNameError: unknown option of method 'rsda', 'intervals'; did you mean 'interval'? ...
    """
    return run(config, out, fresh, track=track)
