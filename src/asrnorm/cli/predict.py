"""`asrnorm predict`: the class of each image, predicted by a finished run."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from asrnorm.cli.options import Modules, RunFolder, import_modules, open_run, print_error
from asrnorm.cli.table import make_table
from asrnorm.core.errors import InputError


def predict(
    run: RunFolder,
    images: Annotated[list[Path], typer.Argument(help="Image files of any format, or folders of them.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line per image: image, class, probability.")
    ] = False,
    modules: Modules = None,
) -> None:
    """Predict the class of each image, with its probability.

    Example: `asrnorm predict runs/pacs.rsc_asr--s0--0123456789 photos`. A file that is not an image is named on
    standard error, the others are predicted, and the exit status is 1.
    """
    import_modules(modules)
    loaded = open_run(run)
    from asrnorm.evaluation import predict_files

    paths = _expand_folders(images)
    table = make_table("image", "class", "probability", wrap=["image"])
    table.columns[-1].justify = "right"
    failed = False
    predictions = predict_files(
        loaded.model,
        paths,
        loaded.classes,
        image_size=loaded.suite.image_size,
        batch_size=loaded.config.evaluate_batch,
        device=loaded.device,
        precision=loaded.config.precision,
        resize=loaded.input_size,
    )
    console = Console(stderr=True)
    hidden = as_json or not console.is_terminal  # a bar would capture the JSON lines
    for path, found in track(predictions, "predicting", len(paths), console=console, transient=True, disable=hidden):
        if isinstance(found, InputError):
            failed = True
            message = f"{path}: no images in it" if path.is_dir() else str(found)
            print_error(message)
        elif as_json:
            typer.echo(json.dumps({"image": str(path), "class": found.label, "probability": found.probability}))
        else:
            table.add_row(escape(str(path)), escape(found.label), f"{found.probability:.4f}")
    if table.rows:
        Console(highlight=False).print(table)
    if failed:
        raise typer.Exit(1)


def _expand_folders(images: list[Path]) -> list[Path]:
    """Replace every folder by the images in it and in its subfolders, sorted."""
    from asrnorm.data.folder_listing import find_images

    paths: list[Path] = []
    for path in images:
        try:
            paths += [path / image for image in find_images(path)] if path.is_dir() else [path]
        except InputError:  # no images in it, which is reported like a file that is not an image
            paths.append(path)
    return paths
