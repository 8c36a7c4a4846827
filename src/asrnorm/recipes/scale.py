"""The three sizes of a recipe: the paper's, a preview, and seconds on a CPU that touch everything once."""

from dataclasses import replace

from asrnorm.core.config import Choice, RunConfig, Scale

# The most a smoke run takes of each option of a method: one grow phase of a few images, one search of a few tuples.
_SMOKE_OPTIONS = {
    "rounds": 1,
    "interval": 2,
    "ascent_steps": 2,
    "candidates": 3,
    "population": 2,
    "generations": 1,
    "search_images": 16,
    "wae_epochs": 1,
}


def at_scale(
    config: RunConfig,
    scale: Scale,
    *,
    short_by: int = 5,
    short_from: int = 0,
    smoke_model: Choice | None = None,
    smoke_size: int | None = None,
) -> RunConfig:
    """Return a recipe of the paper's size at another scale.

    Args:
        config: the recipe.
        scale: `paper` leaves it as it is; `short` divides the steps by `short_by`, and the schedule follows, while
            searches and ascents keep their intervals; `smoke` takes six steps.
        short_by: so many times fewer steps in `short`.
        short_from: steps from which on that is done; a recipe of fewer is short already.
        smoke_model: a smaller network for `smoke`.
        smoke_size: the suite's option `size` in `smoke`, where it has one.

    Example:
        >>> from asrnorm.recipes.cifar10c import erm
        >>> at_scale(erm("bn"), "short").steps
        15640
    """
    if scale == "short":
        return replace(config, scale=scale, steps=config.steps // (short_by if config.steps >= short_from else 1))
    if scale == "smoke":
        suite_args = config.suite.args if smoke_size is None else {**config.suite.args, "size": smoke_size}
        suite = replace(config.suite, args=suite_args)
        return replace(shrink(config), suite=suite, model=smoke_model or config.model)
    return config


def shrink(config: RunConfig) -> RunConfig:
    """Return a config of six small steps, whatever it asks of each option; shrunk again, it stays the same.

    Example:
        >>> from asrnorm.recipes.cifar10c import ada
        >>> small = shrink(ada("bn"))
        >>> small.steps, small.method.args["ascent_steps"], small == shrink(small)
        (6, 2, True)
    """
    given = config.method.args
    args = {**given, **{name: min(given[name], most) for name, most in _SMOKE_OPTIONS.items() if name in given}}
    if "growth" in args:
        args |= {"growth": "volpi", "count": 16}  # the one rule that does not take the whole set
    return replace(
        config,
        scale="smoke",
        method=replace(config.method, args=args),
        steps=6,
        batch_size=8,
        evaluate_every=min(config.evaluate_every, 3),
        evaluate_batch=min(config.evaluate_batch, 16),
        evaluate_limit=32,
        precision="float32",  # what a CPU is fast in
        checkpoint_every=3,
        log_every=1,
        lambda_every=3,
    )
