"""A finished run as a folder for the Hugging Face Hub: weights, `config.json`, and a model card with the scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from asrnorm.core.config import RunConfig, content_hash, dump_config, to_mapping
from asrnorm.core.errors import StorageError
from asrnorm.core.files import describe_failure
from asrnorm.core.results import DomainScore, RunResult, read_environment, read_result
from asrnorm.exporting.base import ExportRequest
from asrnorm.exporting.export import Verdict, verify
from asrnorm.models.hub import USE, WEIGHTS, from_pretrained, front_matter, write_folder
from asrnorm.training import LoadedRun

_METRICS = {
    "accuracy": "accuracy",
    "brier": "Brier score (1/K)",
    "nll": "negative log-likelihood",
    "ece": "ECE, 15 bins",
}


def export_hub(run: LoadedRun, folder: str | Path, out: str | Path) -> Verdict:
    """Write a run to a folder that `asrnorm.from_pretrained` takes, and compare the network there with the run's.

    Args:
        run: `asrnorm.training.load_run(folder, device="cpu")`.
        folder: of the run.
        out: the folder to write; files of an earlier export are replaced.

    Raises:
        InputError: the run has no result, its network cannot be built from a file, or `out` holds another network.
        StorageError: the folder cannot be written.
    """
    folder, out = Path(folder), Path(out)
    result = read_result(folder / "result.json")
    environment = read_environment(folder / "env.json")
    facts = {
        "classes": list(run.classes),
        "input": {"size": list(run.input_size), "layout": "NCHW", "color": "RGB", "range": [0.0, 1.0]},
        "run": to_mapping(without_paths(run.config)),
        "config_hash": content_hash(run.config),
        "commit": result.commit,
    }
    model = run.model.cpu()
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_folder(model, out, facts, describe_run(run, result, environment))
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{describe_failure(error, out)}; choose another --out") from None
    request = ExportRequest(run=run, model=model, size=run.input_size)
    return verify(from_pretrained(out), request, f"{out / WEIGHTS}")


def describe_run(run: LoadedRun, result: RunResult, environment: dict[str, Any]) -> str:
    """Return the model card of a run: use, scores by domain, how it was trained."""
    config = run.config
    title = f"{config.recipe}, seed {config.seed}"
    rows = [("source", result.source), *(("unseen", domain) for domain in result.domains)]
    lines = ["| domain | | accuracy | Brier | NLL | ECE | images |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    lines += [_row(role, domain) for role, domain in rows]
    if result.domains:
        lines.append(f"| average of the unseen | | {result.average_accuracy:.4f} | | | | |")
    notes = (
        [f"Not scored, because they were missing: {', '.join(map(_cell, result.missing))}.\n"] if result.missing else []
    )
    attacks = [f"- accuracy under {_cell(name)}: {value:.4f}" for name, value in result.adversarial.items()]
    height, width = run.input_size
    machine = {"on": environment.get("gpu") or environment.get("device"), "torch": environment.get("torch")}
    facts = {
        "recipe": config.recipe,
        "scale": config.scale,
        "seed": config.seed,
        "steps": result.steps,
        "selection": config.selection,
        "norm": config.norm.name,
        "method": config.method.name,
        "parameters": f"{result.num_parameters:,}",
        "config hash": result.config_hash,
        "commit": ", ".join(result.commits),
        **{name: value for name, value in machine.items() if value},
    }
    parts = [
        front_matter(
            **{"model-index": [{"name": title, "results": [_index(config.suite.name, *row) for row in rows]}]}
        ),
        f"# {title}\n",
        f"A classifier of {len(run.classes)} classes ({', '.join(map(_cell, run.classes[:20]))}"
        f"{', ...' if len(run.classes) > 20 else ''}), trained on {_cell(result.source.name)} alone with "
        "[asrnorm](https://arxiv.org/abs/2106.01899) and scored on domains that it has not seen.\n",
        USE.format(argument=""),
        f"It takes RGB images of {height}x{width} as floats in [0, 1] and normalizes them itself.\n",
        "## Scores\n",
        "\n".join([*lines, "", *notes, *attacks]) + "\n",
        "## Training\n",
        "\n".join(["| | |", "| --- | --- |", *(f"| {name} | {_cell(value)} |" for name, value in facts.items())])
        + "\n",
        "The whole config, for `asrnorm train --config`:\n",
        f"```yaml\n{dump_config(without_paths(config))}```\n",
    ]
    return "\n".join(parts)


def without_paths(config: RunConfig) -> RunConfig:
    """Return a config without the folders of the machine that it was trained on."""
    args = {name: value for name, value in config.suite.args.items() if name != "root"}
    weights = None if config.weights is None else Path(config.weights).name
    return replace(config, suite=replace(config.suite, args=args), weights=weights)


def _row(role: str, domain: DomainScore) -> str:
    numbers = " | ".join(f"{number:.4f}" for number in (domain.accuracy, domain.brier, domain.nll, domain.ece))
    return f"| {_cell(domain.name)} | {role} | {numbers} | {domain.num_samples:,} |"


def _index(suite: str, role: str, domain: DomainScore) -> dict[str, Any]:
    """Return the scores of a domain as the Hub indexes them."""
    metrics = [{"type": key, "name": name, "value": getattr(domain, key)} for key, name in _METRICS.items()]
    dataset = {"name": f"{suite}: {domain.name} ({role})", "type": suite}
    return {"task": {"type": "image-classification"}, "dataset": dataset, "metrics": metrics}


def _cell(value: object) -> str:
    """Return text for a Markdown table: one line, and no character that ends a cell or begins a tag."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
