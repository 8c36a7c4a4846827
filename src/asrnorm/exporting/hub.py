"""A finished run as a folder for the Hugging Face Hub: weights, `config.json`, and a model card with the scores."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from asrnorm.core.config import RunConfig, content_hash, dump_config, to_mapping
from asrnorm.core.results import DomainScore, RunResult, read_environment, read_result
from asrnorm.exporting.base import ExportRequest
from asrnorm.exporting.export import Verdict, verify
from asrnorm.models.hub import WEIGHTS, from_pretrained, make_card, write_folder
from asrnorm.training import LoadedRun

_MOST_CLASSES = 20  # named in a card
_METRICS = ("accuracy", "brier", "nll", "ece")


def export_hub(run: LoadedRun, folder: str | Path, out: str | Path) -> Verdict:
    """Write a run to a folder that `asrnorm.from_pretrained` takes, and compare the network there with the run's."""
    result, environment = read_result(Path(folder, "result.json")), read_environment(Path(folder, "env.json"))
    facts = {
        "classes": list(run.classes),
        "input": {"size": list(run.input_size), "layout": "NCHW", "color": "RGB", "range": [0.0, 1.0]},
        "run": to_mapping(without_paths(run.config)),
        "config_hash": content_hash(run.config),
        "commit": result.commit,
    }
    model = run.model.cpu()
    write_folder(model, Path(out), facts, describe_run(run, result, environment))
    request = ExportRequest(run=run, model=model, size=run.input_size)
    return verify(from_pretrained(out), request, str(Path(out, WEIGHTS)))


def describe_run(run: LoadedRun, result: RunResult, environment: dict[str, Any]) -> str:
    """Return the model card of a run: what it takes, scores by domain, how it was trained."""
    config, (height, width) = run.config, run.input_size
    title = f"{config.recipe}, seed {config.seed}"
    classes = ", ".join(map(_cell, run.classes[:_MOST_CLASSES])) + (", ..." if run.classes[_MOST_CLASSES:] else "")
    rows = [("source", result.source), *(("unseen", domain) for domain in result.domains)]
    scores: list[tuple[object, ...]] = [
        (one.name, role, *(f"{getattr(one, name):.4f}" for name in _METRICS), f"{one.num_samples:,}")
        for role, one in rows
    ]
    if result.domains:
        scores.append(("average of the unseen", "", f"{result.average_accuracy:.4f}", "", "", "", ""))
    facts = {
        "seed": config.seed,
        "steps": f"{result.steps:,} at scale {config.scale}, selected by {config.selection}",
        "parameters": f"{result.num_parameters:,}",
        "config hash, commit": f"{result.config_hash}, {', '.join(result.commits)}",
        "machine": f"{environment.get('gpu') or environment.get('device')}, torch {environment.get('torch')}",
        **{f"accuracy under {name}": f"{value:.4f}" for name, value in result.adversarial.items()},
        **({"not scored, missing": ", ".join(result.missing)} if result.missing else {}),
    }
    return make_card(
        title,
        f"A classifier of {len(run.classes)} classes ({classes}), trained on {_cell(result.source.name)} alone and "
        "scored on domains that it has not seen, with asrnorm ([ASR-Norm](https://arxiv.org/abs/2106.01899)). It takes "
        f"RGB images of {height}x{width} as floats in [0, 1] and normalizes them itself.",
        "## Scores\n",
        _table(("domain", "", "accuracy", "Brier / K", "NLL", "ECE", "images"), scores),
        "## Training\n",
        _table(("", ""), facts.items()),
        f"The whole config, for `asrnorm train --config`:\n\n```yaml\n{dump_config(without_paths(config))}```\n",
        metadata={"model-index": [{"name": title, "results": [_index(config.suite.name, *row) for row in rows]}]},
    )


def without_paths(config: RunConfig) -> RunConfig:
    """Return a config without the folders and files of the machine that it was trained on."""
    args = {name: value for name, value in config.suite.args.items() if name not in ("root", "aliases")}
    weights = None if config.weights is None else Path(config.weights).name
    return replace(config, suite=replace(config.suite, args=args), weights=weights)


def _index(suite: str, role: str, domain: DomainScore) -> dict[str, Any]:
    """Return the scores of a domain as the Hub indexes them."""
    metrics = [{"type": name, "value": getattr(domain, name)} for name in _METRICS]
    dataset = {"name": f"{suite}: {domain.name} ({role})", "type": suite}
    return {"task": {"type": "image-classification"}, "dataset": dataset, "metrics": metrics}


def _table(heading: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [" | ".join(map(_cell, row)) for row in (heading, *rows)]
    lines.insert(1, " | ".join("---" for _ in heading))
    return "".join(f"| {line} |\n" for line in lines)


def _cell(value: object) -> str:
    """Return text for a Markdown table: one line, and no character that ends a cell or begins a tag."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
