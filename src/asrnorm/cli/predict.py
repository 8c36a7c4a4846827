"""`asrnorm predict`: the class of images, by a finished run."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from asrnorm.cli.options import Modules, import_modules, open_run
from asrnorm.core.errors import InputError


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.", show_default=False)],
    images: Annotated[
        list[Path], typer.Argument(help="Image files of any format, or folders of them.", show_default=False)
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line per image: image, class, probability.")
    ] = False,
    modules: Modules = None,
) -> None:
    """Predict the class of each image, with its probability.

    Example: `asrnorm predict runs/pacs.rsc_asr--s0--0123456789 photos`. A file that is no image is named on standard
    error, the others go on, and the exit status is 1.
    """
    import_modules(modules)
    loaded = open_run(run)
    from asrnorm.evaluation import predict_files

    paths = _spell_out(images)
    table = Table(box=None, pad_edge=False)
    table.add_column("image", overflow="fold")
    table.add_column("class", no_wrap=True)
    table.add_column("probability", justify="right", no_wrap=True)
    num_failed = 0
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
    hidden = as_json or not console.is_terminal  # a bar would take over what is printed beside it
    for path, found in track(predictions, "predicting", len(paths), console=console, transient=True, disable=hidden):
        if isinstance(found, InputError):
            num_failed += 1
            said = f"{path}: no images in it" if path.is_dir() else str(found)
            typer.echo("asrnorm: " + " ".join(said.split()), err=True)
        elif as_json:
            typer.echo(json.dumps({"image": str(path), "class": found.label, "probability": found.probability}))
        else:
            table.add_row(escape(str(path)), escape(found.label), f"{found.probability:.4f}")
    if table.rows:
        Console(highlight=False).print(table)
    if num_failed:
        raise typer.Exit(1)


def _spell_out(images: list[Path]) -> list[Path]:
    """Put in place of every folder the images in it, sorted, those of its folders too."""
    from asrnorm.data.folder_listing import find_images

    spelled: list[Path] = []
    for path in images:
        try:
            spelled += [path / image for image in find_images(path)] if path.is_dir() else [path]
        except InputError:  # there is none in it: named with files that are no images
            spelled.append(path)
    return spelled
