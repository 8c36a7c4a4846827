"""`asrnorm export`: write the model of a finished run to a file that runs without this package."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from asrnorm.cli.options import JsonFile, Modules, RunFolder, import_modules, json_output, open_run
from asrnorm.core.errors import UnknownNameError, WrongCallError, describe_unknown

# A copy of the registry's, which needs torch to load; a test compares them.
SUFFIXES = {"onnx": ".onnx", "safetensors": ".safetensors", "torch-export": ".pt2"}
_HUB = "hub"  # a folder, not a file
_DYNAMIC = "dynamic"
_WARNING_TOLERANCE = 1e-2  # relative to the largest logit


def export(
    run: RunFolder,
    file_format: Annotated[
        str, typer.Option("--format", help=f"One of: {', '.join([*SUFFIXES, _HUB])}.", metavar="NAME")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File or folder to write.", show_default="RUN/export/model.<ending>"),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="HxW", help="Size of the images that the file takes.", show_default="the run's"),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="N|dynamic", help="Number of images at a time.")] = _DYNAMIC,
    opset: Annotated[
        int | None, typer.Option(help="Version of the ONNX operators.", show_default="PyTorch's choice")
    ] = None,
    json_file: JsonFile = None,
    modules: Modules = None,
) -> None:
    """Write the model of a run to a file, compared with the model on random images.

    Example: `asrnorm export runs/digits.rsda_asr--s0--0123456789 --format onnx`. Files of `onnx` and `torch-export` run
    in a process without this package; `<file>.json` beside each says what it takes and what its classes are. `hub` is a
    folder for the Hugging Face Hub, with a model card; `asrnorm.from_pretrained` takes it.
    """
    if file_format not in (*SUFFIXES, _HUB):
        raise UnknownNameError(describe_unknown("format", file_format, (*SUFFIXES, _HUB)))
    if size is not None and not re.fullmatch(r"\d+x\d+", size):
        raise WrongCallError(f"--size {size}: must be height and width, such as 224x224")
    if batch != _DYNAMIC and not batch.isdecimal():
        raise WrongCallError(f"--batch {batch}: must be a number, or {_DYNAMIC}")
    if file_format == _HUB and (size is not None or batch != _DYNAMIC or opset is not None):
        raise WrongCallError("format 'hub' holds weights only: leave out --size, --batch and --opset")
    with json_output(json_file, quiet=True) as write_json:
        import_modules(modules)
        loaded = open_run(run)
        if file_format == _HUB:
            from asrnorm.exporting import export_hub

            folder = out or run / "export" / _HUB
            verdict = export_hub(loaded, run, folder)
            write_json(json.dumps({"format": file_format, "files": [str(folder)], **asdict(verdict)}, indent=2))
            error = verdict.relative_error
            typer.echo(f"{folder}: relative error {error:.1e} against the model; the card is {folder / 'README.md'}")
            return
        from asrnorm.exporting import export_run

        path = run / "export" / f"model{SUFFIXES[file_format]}" if out is None else out
        height, _, width = (size or "").partition("x")
        done = export_run(
            loaded,
            file_format,
            path,
            size=(int(height), int(width)) if size else None,
            batch=None if batch == _DYNAMIC else int(batch),
            opset=opset,
        )
        files = [str(done.path), *map(str, done.sidecars)]
        write_json(json.dumps({"format": file_format, "files": files, **asdict(done.verdict)}, indent=2))
        typer.echo(f"{done.path}: {done.path.stat().st_size:,} bytes")
        verdict = done.verdict
        typer.echo(
            f"relative error {verdict.relative_error:.1e} against the model (allowed {verdict.tolerance:.1e}), on "
            f"random images in batches of {', '.join(map(str, verdict.batches))}"
        )
        if verdict.tolerance > _WARNING_TOLERANCE:
            typer.echo(
                "warning: rounding alone changes this model's logits that much, so they differ between machines; "
                "feature maps of few pixels are a common cause: larger images may help",
                err=True,
            )
        typer.echo("\n".join(files[1:]))
