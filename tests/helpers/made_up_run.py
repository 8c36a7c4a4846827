"""Run folders with made-up numbers, for tests of reports: nothing here was ever measured."""

import dataclasses
import json
import math
import random

import numpy as np

from asrnorm.core.config import content_hash, dump_config, run_name
from asrnorm.core.results import DomainScore, RunResult, write_result
from asrnorm.studies import ANALYSIS_FILES, DIVERGENCE_FILE, Study, get_study
from asrnorm.studies.plan import iterate_specs

COMMIT = "f1c710000000000000000000000000000000beef"  # "fiction": no such commit
TYPES = get_study("fig-corruptions").columns[4:]  # after the four groups
DOMAINS = {
    "digits": ("svhn", "mnist_m", "syn", "usps"),
    "cifar10c": tuple(f"{name}/{level}" for name in TYPES for level in range(1, 6)),
    "pacs": ("photo", "art_painting", "cartoon", "sketch"),
    "digits_mini": ("uci", "blended", "rendered", "inverted"),
}
GAIN = {"asr": 0.16, "as": 0.14, "ar": 0.12, "sn_in_ln": 0.1, "sn": 0.04, "in": 0.11, "bn_test": 0.06, "none": 0.02}


def make_up_runs(
    study: Study, runs, *, scale="smoke", seeds=(0, 1, 2), skip=lambda spec, seed: False, commit=COMMIT, gone=()
):
    """Write the folder of every run that a study needs, evaluations and logs too, but for those to skip."""
    for spec in iterate_specs(study):
        for seed in seeds:
            if skip(spec, seed):
                continue
            config = spec.config(seed, scale)
            folder = runs / run_name(config)
            if not (folder / "result.json").exists():
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.yaml").write_text(dump_config(config))
                write_log(folder / "log.jsonl", config, seed)
                write_result(folder / "result.json", make_up_result(config, commit, gone))
            if spec.evaluation is not None:
                path = folder / "evaluations" / f"{spec.evaluation.name}.json"
                path.parent.mkdir(exist_ok=True)
                write_result(path, make_up_result(spec.scored_config(seed, scale), commit, gone))


def make_up_divergence(spec, runs, seed, *, scale="smoke"):
    """Write the folder of a run that has lost its finite loss."""
    config = spec.config(seed, scale)
    folder = runs / run_name(config)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(config))
    write_log(folder / "log.jsonl", config, seed, broken_at=0.4)
    (folder / DIVERGENCE_FILE).write_text(json.dumps({"schema": 1, "message": "the loss is not finite"}))


def make_up_statistics(spec, runs, seed, *, scale="smoke", samples=40):
    """Write the analysis that t-SNE is drawn from: domains that part in the first layer and mix in the last."""
    chance = np.random.default_rng(seed)
    domain = np.repeat(["photo", "art_painting", "cartoon", "sketch"], samples)
    shift = np.repeat(np.arange(4), samples)[:, None]
    arrays = {
        f"{name}_{layer}": chance.normal(size=(4 * samples, 16)) + gap * shift
        for name in ("mu", "sigma")
        for layer, gap in (("first", 1.2), ("last", 0.1))
    }
    path = runs / run_name(spec.config(seed, scale)) / ANALYSIS_FILES["statistics"]
    path.parent.mkdir(parents=True)
    np.savez(path, domain=domain, **arrays)


def make_up_result(config, commit=COMMIT, gone=()) -> RunResult:
    chance = random.Random(f"{config.recipe} {config.seed} {config.norm.name} {config.evaluate_batch}")
    suite = config.suite.name
    source = config.suite.args.get("source")
    sources = (source,) if isinstance(source, str) else tuple(source or ())
    names = [name for name in DOMAINS[suite] if name not in (*sources, *gone)]
    base = 0.58 + GAIN.get(config.norm.name, 0.0) + 0.03 * (config.method.name != "erm") + chance.gauss(0, 0.006)
    domains = tuple(_score(name, base, chance) for name in names)
    clean = dataclasses.replace(_score("source", 0.9, chance), name="source")
    return RunResult(
        recipe=config.recipe,
        scale=config.scale,
        seed=config.seed,
        config_hash=content_hash(config),
        commit=commit,
        selection=config.selection,
        num_parameters=11_180_000 + int(2e6 * GAIN.get(config.norm.name, 0) * 5),
        source=clean,
        domains=domains,
        missing=tuple(gone),
        average_accuracy=sum(domain.accuracy for domain in domains) / len(domains),
        adversarial={"ada25-1": base - 0.2, "fgsm-1": base - 0.3} if suite == "cifar10c" else {},
        wall_seconds=chance.uniform(100, 900),
        steps=config.steps,
    )


def _score(name, base, chance) -> DomainScore:
    kind, slash, level = name.partition("/")
    fall = 0.05 * (int(level) - 3) if slash else 0.0
    own = random.Random(kind).uniform(-0.1, 0.1)
    accuracy = min(0.99, max(0.05, base + own - fall + chance.gauss(0, 0.004)))
    brier = 0.12 * (1 - accuracy)
    return DomainScore(
        name=name,
        accuracy=accuracy,
        brier=brier,
        brier_sum=10 * brier,
        nll=3 * (1 - accuracy),
        ece=0.3 * (1 - accuracy),
        num_samples=1000,
    )


def write_log(path, config, seed, *, broken_at=1.0):
    """Write a hundred rows of a training, with lambdas where the norm has them; NaN after a share of the steps."""
    steps = config.steps
    chance = random.Random(seed)
    layers = [f"layer{i}.norm" for i in range(1, 6)]
    names = ("lambda_mu", "lambda_sigma") + (("lambda_beta", "lambda_gamma") if config.suite.name == "pacs" else ())
    rows = []
    for number, step in enumerate(range(1, steps + 1, max(1, steps // 100))):
        if step > broken_at * steps:
            rows.append({"step": step, "loss": math.nan, "accuracy": 0.1})
            break
        loss = 2.2 * math.exp(-5 * step / steps) + 0.1 + abs(chance.gauss(0, 0.03))
        row = {"step": step, "loss": loss, "accuracy": max(0.0, 1 - loss / 2.4), "lr": 0.1}
        if number % max(1, min(10, steps // 3)) == 0 and config.norm.name in ("asr", "as", "ar"):
            row["lambdas"] = {
                layer: {name: _lambda(step / steps, depth, place) for place, name in enumerate(names)}
                for depth, layer in enumerate(layers)
            }
        rows.append(row)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _lambda(time, depth, place):
    start, speed = (-3.0, 4.5) if place < 2 else (-5.0, 2.0)
    return 1 / (1 + math.exp(-(start + speed * time * (0.5 + 0.2 * depth + 0.1 * place))))
