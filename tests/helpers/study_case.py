"""A small study and results for it, made of nothing, for tests of what reads them."""

import json
from pathlib import Path

from asrnorm.core.config import content_hash, run_name
from asrnorm.core.results import DomainScore, RunResult, write_result
from asrnorm.studies import RunSpec

DIGITS = ("svhn", "mnist_m", "syn", "usps")


def score(name, accuracy, brier=0.05):
    return DomainScore(
        name=name, accuracy=accuracy, brier=brier, brier_sum=10 * brier, nll=1.0, ece=0.1, num_samples=100
    )


def make_result(
    spec: RunSpec,
    seed,
    accuracies,
    *,
    scale="paper",
    missing=(),
    commit="abc",
    parameters=1_000_000,
    validation=None,
):
    """A result of a run, as it was scored, with these accuracies by domain."""
    config = spec.scored_config(seed, scale)
    domains = tuple(score(name, value) for name, value in accuracies.items())
    return RunResult(
        recipe=config.recipe,
        scale=scale,
        seed=seed,
        config_hash=content_hash(config),
        commit=commit,
        selection=config.selection,
        num_parameters=parameters,
        source=score("source", 0.99),
        domains=domains,
        missing=tuple(missing),
        average_accuracy=sum(accuracies.values()) / len(accuracies),
        adversarial={"ada25-1": 0.3},
        wall_seconds=1.0,
        steps=config.steps,
        validation=validation or {},
    )


def put_result(runs: Path, spec: RunSpec, seed, accuracies, *, scale="paper", env=None, **facts) -> Path:
    """Lay a result where its run would have left it, and return the run's folder."""
    folder = runs / run_name(spec.config(seed, scale))
    result = make_result(spec, seed, accuracies, scale=scale, **facts)
    folder.mkdir(parents=True, exist_ok=True)
    if env is not None:
        (folder / "env.json").write_text(json.dumps(env))
    if spec.evaluation is None:
        write_result(folder / "result.json", result)
    else:
        (folder / "evaluations").mkdir(exist_ok=True)
        write_result(folder / "evaluations" / f"{spec.evaluation.name}.json", result)
    return folder
