"""What `asrnorm evaluate` scores: the network with its changes, and the images of a suite or of `--data`."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from asrnorm.core.config import Choice, RunConfig
from asrnorm.core.errors import AsrnormError, InputError, WrongCallError, shorten_list
from asrnorm.core.hashing import PUBLISHED
from asrnorm.core.results import read_environment

if TYPE_CHECKING:
    from asrnorm.core.results import DomainScore
    from asrnorm.data import Suite
    from asrnorm.training import LoadedRun

# Options of a suite that decide which of its images are trained on.
_SPLITTING = {"digits_mini": ("seed",), "folder": ("validation", "test", "seed")}

# Fields of a suite that say how to read the classes of any folder, also one of `--data`.
FOLDER_FIELDS = {"suite.aliases", "suite.unknown"}
# From the number of domains to a context that yields a callback for each score.
Progress = Callable[[int], AbstractContextManager[Callable[["DomainScore"], None]]]


def change_network(
    run: Path, loaded: "LoadedRun", config: RunConfig, *, move: bool, scores_suite: bool
) -> "Suite | None":
    """Apply the norm, precision, confinement and, with `move`, device of a changed config to the network of a run.

    Return the suite of the training if the confinement changed and its effect on the source is to be shown, because a
    suite is scored and not images of `--data`.
    """
    _change_norm(loaded, config)
    if config.precision != loaded.config.precision:
        from asrnorm.core.precision import weight_dtype

        loaded.model.to(weight_dtype(config.precision))
    if move and config.device != "auto":
        from asrnorm.training.assembly import choose_device

        loaded.model.to(choose_device(config.device))
    if config.confine == loaded.config.confine:
        return None
    # Only confining needs source images; releasing does not, so they are required only where the suite is scored too.
    needs_source = config.confine or (scores_suite and config.suite.name == loaded.config.suite.name)
    own = _locate_own_suite(loaded, config) if needs_source else None
    if own is not None:
        from asrnorm.training.environment import check_source

        own.require_source()
        check_source(run / "env.json", own)
    if config.confine and own is not None:
        from asrnorm.training.assembly import confine_to_source

        confine_to_source(loaded.model, own, config)
    else:
        from asrnorm.norms import ASRNorm2d

        for layer in loaded.model.modules():
            if isinstance(layer, ASRNorm2d):
                layer.confine(None, None)
    return own


def _change_norm(loaded: "LoadedRun", config: RunConfig) -> None:
    trained = loaded.config.norm
    if config.norm == trained:
        return
    if (trained.name, config.norm.name) != ("bn", "bn_test"):
        raise InputError(
            f"a trained network keeps its norm: {trained.name!r} cannot become {config.norm.name!r}; "
            "only 'bn' can become 'bn_test'"
        )
    if config.norm.args not in ({}, trained.args):
        raise InputError("bn_test has the options that the run's bn was trained with: leave norm.OPTION out")
    from asrnorm.conversion import convert

    convert(loaded.model, "bn_test", layers="all", **trained.args)


class FolderScores(NamedTuple):
    """Scores of the domains of `--data`, errors of the domains without a score, and unreadable images."""

    scores: list["DomainScore"]
    failed: dict[str, InputError]
    unreadable: list[Path]

    def gaps(self) -> dict[str, list[str]]:
        """Return what was not scored, by the keys of the `--json` file."""
        return {"missing": list(self.failed), "unreadable": list(map(str, self.unreadable))}

    def require_all(self) -> None:
        """Raise `InputError` if a domain or an image was not scored."""
        if self.failed:
            first, error = next(iter(self.failed.items()))
            count = len(self.failed)
            rest = f" ({count} of {count + len(self.scores)} domains)" if count > 1 else ""
            raise InputError(f"{first} was not scored{rest}: {error}")
        if self.unreadable:
            named = shorten_list([str(path) for path in self.unreadable], 1)
            raise InputError(f"scored without unreadable images: {named}; --json lists all")


def score_folders(
    loaded: "LoadedRun",
    data: Path,
    limit: int,
    suite_args: Mapping[str, Any],
    options: dict[str, Any],
    progress: Progress,
) -> FolderScores:
    """Score the domains in a folder or table one by one, without the images and domains that cannot be read."""
    from asrnorm.data.labelled_folder import open_domains, split_unreadable
    from asrnorm.evaluation import score_domains

    treat = {name: value for name, value in suite_args.items() if f"suite.{name}" in FOLDER_FIELDS and value}
    domains = open_domains(data, loaded.classes, loaded.suite.image_size, **treat)
    found = FolderScores([], {}, [])
    with progress(len(domains)) as report:
        options = {**options, "report": report, "limit": limit}
        for name, images in domains.items():
            try:
                try:
                    found.scores.extend(score_domains(loaded.model, {name: images}, **options))
                except InputError:
                    readable, unreadable = split_unreadable(images)
                    if not unreadable or not len(readable):
                        raise
                    found.scores.extend(score_domains(loaded.model, {name: readable}, **options))
                    found.unreadable.extend(unreadable)
            except InputError as error:
                found.failed[name] = error
    return found


def choose_suite(run: Path, loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite to score a run on: its own, or another with the same classes.

    Raise an error if images that were trained on could count as held out, because an option splits them differently
    or the source has changed.
    """
    from asrnorm.data import SUITES, create_suite
    from asrnorm.data.image_table import to_nfc

    trained, scored = loaded.config.suite, config.suite
    if scored == trained:
        root = str(trained.args.get("root", ""))
        if trained.name not in PUBLISHED and root and not Path(root).exists():
            raise InputError(
                f"{root}: the images of the run are no longer there; give their new folder with --set suite.root=DIR, "
                "or score others with --data DIR"
            )
        suite: Suite = loaded.suite
    else:
        try:
            SUITES.check(scored.name, scored.args)
        except InputError as error:
            raise WrongCallError(str(error)) from error
        # At the size of the run: images resized from another size would differ from those of the training.
        size = {"size": loaded.suite.image_size} if scored.name == "folder" else {}
        suite = create_suite(scored.name, **{**size, **scored.args})
    own = _locate_own_suite(loaded, config) if scored.name == trained.name else None
    if own is not None and _has_trained_images(run, trained, scored, own):
        check_split(trained, scored, own.sources, suite.sources)
    if list(map(to_nfc, suite.classes)) != list(map(to_nfc, loaded.classes)):
        raise InputError(
            f"the run knows the classes {shorten_list(loaded.classes)}, "
            f"suite {suite.name!r} has {shorten_list(suite.classes)}; they must be the same"
        )
    if own is not None and _is_same_root(trained, scored) and own.source_listing():
        from asrnorm.training.environment import check_source

        check_source(run / "env.json", own, "score the images as they are now with --data")
    return suite


def check_split(trained: Choice, scored: Choice, sources: tuple[str, ...], scored_sources: tuple[str, ...]) -> None:
    """Raise `WrongCallError` if a suite with the images of the training would hold out others than the run did."""
    changed = [name for name in _SPLITTING.get(scored.name, ()) if _option(trained, name) != _option(scored, name)]
    changed += ["source"] if scored_sources != sources else []
    if changed:
        raise WrongCallError(
            f"suite.{changed[0]} decides which images a run is trained on and cannot change; score other images with "
            "--data or another --suite"
        )


def _locate_own_suite(loaded: "LoadedRun", config: RunConfig) -> "Suite":
    """Return the suite of the training, at `suite.root` and `suite.aliases` of the config if its files have moved."""
    from asrnorm.data import create_suite

    trained, scored = loaded.config.suite, config.suite
    if scored.name != trained.name:
        return loaded.suite
    aliases = trained.args.get("aliases")
    movable = ("root", "aliases") if aliases and not Path(str(aliases)).exists() else ("root",)
    args = {**trained.args, **{key: scored.args[key] for key in movable if key in scored.args}}
    return loaded.suite if args == trained.args else create_suite(trained.name, **args)


def _has_trained_images(run: Path, trained: Choice, scored: Choice, own: "Suite") -> bool:
    """Return whether the images of the training are at the root of the scored suite."""
    if scored.name in PUBLISHED or _is_same_root(trained, scored):
        return True
    try:
        return own.source_listing() == (read_environment(run / "env.json").get("listing") or None)
    except AsrnormError:  # for example other domains
        return False


def _is_same_root(first: Choice, second: Choice) -> bool:
    roots = [choice.args.get("root") for choice in (first, second)]
    return roots[0] == roots[1] or (all(roots) and len({os.path.realpath(str(root)) for root in roots}) == 1)


def _option(suite: Choice, name: str) -> object:
    from asrnorm.data import SUITES

    return suite.args.get(name, SUITES.options(suite.name)[name].default)
