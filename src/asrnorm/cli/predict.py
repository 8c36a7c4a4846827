"""`asrnorm predict`: the class of each image, predicted by a finished run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from typer import Argument, Option

from asrnorm.cli.options import JsonFile, Modules, RunFolder, import_modules, json_lines, open_run, print_error
from asrnorm.cli.table import make_table
from asrnorm.core.errors import InputError


def predict(
    run: RunFolder,
    images: Annotated[list[Path], Argument(help="Image files of any format, or folders of them.")],
    top: Annotated[int, Option(min=1, metavar="K", help="Show the K most probable classes of each image.")] = 1,
    json_file: JsonFile = None,
    modules: Modules = None,
) -> None:
    """Predict the class of each image, with its probability.

    Example: `asrnorm predict runs/pacs.rsc_asr--s0--0123456789 photos --top 5`. A file that is not an image is named
    on standard error, the others are predicted, and the exit status is 1. JSON has one line per image.
    """
    with json_lines(json_file) as write_line:
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
            precision=loaded.config.precision,
            resize=loaded.input_size,
            top=top,
        )
        console = Console(stderr=True)
        hidden = json_file == Path("-") or not console.is_terminal  # a bar would capture the JSON lines
        shown = track(predictions, "predicting", len(paths), console=console, transient=True, disable=hidden)
        for path, found in shown:
            if isinstance(found, InputError):
                failed = True
                print_error(f"{path}: no images in it" if path.is_dir() else str(found))
                continue
            ranking = [(found.label, found.probability), *found.runners_up]
            row: dict[str, Any] = {"image": str(path), "class": found.label, "probability": found.probability}
            if top > 1:
                row["top"] = [{"class": label, "probability": probability} for label, probability in ranking]
            write_line(json.dumps(row))
            for rank, (label, probability) in enumerate(ranking):
                table.add_row("" if rank else escape(str(path)), escape(label), f"{probability:.4f}")
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
