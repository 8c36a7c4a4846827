"""`asrnorm audit`: a robustness report on any model."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer import Argument, Option

from asrnorm.cli.options import JsonFile, Modules, import_modules, json_output
from asrnorm.cli.table import make_table
from asrnorm.core.errors import WrongCallError

if TYPE_CHECKING:
    from asrnorm.audit import Audit, AuditedModel, LabeledImages, Plan

_SIZE = 224  # where neither the call nor a model says
_LIMIT, _QUICK_LIMIT = 500, 100


def _read_number(word: str) -> float:
    """Return one of the numbers of `--mean` and `--std`, which take the next three words whatever they are."""
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise typer.BadParameter(f"three numbers separated by spaces are wanted, as 0.485 0.456 0.406, not {word!r}")
    return number


Triple = tuple[float, float, float]


def _channel_option(text: str) -> Any:
    return Option(metavar="R G B", parser=_read_number, help=text, show_default="the model's")


def audit(
    model: Annotated[
        str,
        Argument(
            help="A run folder, torchvision:NAME, timm:NAME, package.module:function, file.py:function, "
            "a .pt2 or an .onnx file.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path, Option(help="Folder of one subfolder per class, or .csv or .jsonl table.", show_default=False)
    ],
    against: Annotated[str | None, Option(metavar="MODEL", help="A second model, on the same images.")] = None,
    weights: Annotated[
        str | None,
        Option(help="Weights for a library's network or a function: a file, or the library's own name for them."),
    ] = None,
    against_weights: Annotated[str | None, Option(metavar="WEIGHTS", help="The same for the second model.")] = None,
    classes: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="JSON file that maps folder names to outputs, or lists the names in their order; for models that do "
            "not know them.",
        ),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Use 100 images, severities 1, 3, 5, and a shorter search.")] = False,
    limit: Annotated[
        int | None,
        Option(
            min=0, help="Use at most this many images, spread over classes; 0 takes all.", show_default="500, quick 100"
        ),
    ] = None,
    size: Annotated[
        int | None, Option(min=1, help="Side to which images are resized.", show_default="the model's, or 224")
    ] = None,
    mean: Annotated[Triple | None, _channel_option("Mean of each channel of the input.")] = None,
    std: Annotated[Triple | None, _channel_option("Standard deviation of each channel of the input.")] = None,
    device: Annotated[str, Option(help="Device to run on: auto, cpu, cuda, cuda:1, ...")] = "auto",
    out: Annotated[Path, Option(help="Folder of the page, the numbers and cached results.")] = Path("audit"),
    json_file: JsonFile = None,
    seed: Annotated[int, Option(help="Seed of noise, attacks and the search.")] = 0,
    workers: Annotated[
        int | None, Option(min=1, help="Number of processes that corrupt images.", show_default="one per core")
    ] = None,
    tensors: Annotated[
        bool | None,
        Option(
            "--tensors/--no-tensors",
            help="Corrupt images on the device, as tensors, rather than in worker processes.",
            show_default="on a GPU",
        ),
    ] = None,
    trust: Annotated[bool, Option("--trust", help="Load a .pt2 file whatever it holds; it can run code.")] = False,
    modules: Modules = None,
) -> None:
    """Measure how robust a model is: corruptions, calibration, attacks, the changes that hurt most, and what breaks.

    Example: `asrnorm audit net.onnx --data photos/day --mean 0.485 0.456 0.406 --std 0.229 0.224 0.225 --quick`. A
    network of your own: `asrnorm audit my_net.py:build --weights weights.pt --data photos/day`, where `build()` returns
    it. Started again in the same folder, it resumes where it stopped.
    """
    if against_weights is not None and against is None:
        raise WrongCallError("--against-weights are of a second model: give --against too")
    with json_output(json_file) as write_numbers:
        import_modules(modules)
        from asrnorm.audit import Plan, run_audit, write_audit

        count = limit if limit is not None else _QUICK_LIMIT if quick else _LIMIT
        plan = Plan.quick(limit=count or None, seed=seed) if quick else Plan(limit=count or None, seed=seed)
        words = [(model, weights), (against, against_weights)]
        models = _load(words, mean, std, device=device, seed=seed, trust=trust)
        side = (size, size) if size else _choose_size(models)
        images, outputs = _prepare(models, data, side, plan, classes)
        options: Any = {"cache": out / "ledger.jsonl", "workers": workers, "tensors": tensors}
        result = run_audit(models, images, outputs, plan, data=data.resolve().name, **options)
        page, numbers = write_audit(result, images, out)
        write_numbers(numbers.read_text(encoding="utf-8"))
        _print(result)
        typer.echo(f"report: {page}")


def _load(
    words: list[tuple[str | None, str | None]], mean: Triple | None, std: Triple | None, **options: Any
) -> list["AuditedModel"]:
    from asrnorm.audit import InputSpec, load_model
    from asrnorm.audit.load import normalizes_itself

    if mean is not None and all(normalizes_itself(word) for word, _ in words if word):
        raise WrongCallError("a run, or what was exported of one, normalizes images itself: leave out --mean and --std")
    input_spec = InputSpec(mean=mean, std=std)
    models = [load_model(word, weights=weights, input_spec=input_spec, **options) for word, weights in words if word]
    if len(models) == 2 and models[0].name == models[1].name:
        for model, (_, weights), letter in zip(models, words, "AB", strict=True):
            model.name += f" ({Path(weights).stem})" if weights and words[0][1] != words[1][1] else f" ({letter})"
    return models


def _choose_size(models: list["AuditedModel"]) -> tuple[int, int]:
    """Return the size of most pixels that a model asks for; the others resize what they get."""
    sizes = (model.native_size for model in models if model.native_size)
    return max(sizes, key=math.prod, default=(_SIZE, _SIZE))


def _prepare(
    models: list["AuditedModel"], data: Path, size: tuple[int, int], plan: "Plan", classes: Path | None
) -> tuple["LabeledImages", list[dict[str, int]]]:
    from asrnorm.audit import read_images
    from asrnorm.audit.images import knows_classes, map_classes

    for model in models:  # before a thousand images are decoded
        model.probe(size)
    known = {name for model in models for name in model.class_names or ()}
    images = read_images(data, size, plan.limit, known, only_known=classes is None and bool(known))
    if classes is not None and all(knows_classes(images.classes, model.class_names) for model in models):
        raise WrongCallError("a run knows which of its outputs these folders are: leave out --classes")
    outputs = [
        map_classes(images.classes, model.num_classes, names=model.class_names, file=classes) for model in models
    ]
    for line in images.skipped[:3]:
        typer.echo(f"skipped: {line}", err=True)
    if len(images.skipped) > 3:
        typer.echo(f"skipped: {len(images.skipped)} files in all", err=True)
    return images, outputs


def _print(result: "Audit") -> None:
    headings = ("clean", "corrupted", "worst tuple", "strongest attack")
    table = make_table("", *headings, wrap=("", *headings), numbers=True, title="accuracy in %")
    for model in result.models:
        mean = model.under()
        attack = min(model.attacks.values(), default=None)
        values = [model.clean.accuracy, mean.accuracy if mean else None, model.search.scores.accuracy, attack]
        table.add_row(model.name, *("-" if value is None else f"{100 * value:.1f}" for value in values))
    Console().print(table)
