"""`asrnorm data corrupt`: CIFAR-10-C from CIFAR-10, or a folder of images with one corruption."""

from pathlib import Path
from typing import Annotated

import typer

from asrnorm.core.errors import InputError
from asrnorm.core.settings import data_folder

_CIFAR = "cifar10c"
_ARCHIVE_FOLDER = "CIFAR-10-C"  # the name in the published archive
_DEFAULT_SEVERITY = 3


def corrupt(
    target: Annotated[str, typer.Argument(help="`cifar10c`, or a folder of images.", show_default=False)],
    corruption: Annotated[
        list[str] | None,
        typer.Option("--corruption", help="Which corruption. cifar10c: may be given again; all 19 by default."),
    ] = None,
    severity: Annotated[
        int | None,
        typer.Option("--severity", help="Severity 1 to 5, for a folder; cifar10c has all five.", show_default="3"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random corruptions.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Number of processes, for cifar10c.", show_default="one per core"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write to.", show_default="ASRNORM_DATA/CIFAR-10-C")
    ] = None,
    root: Annotated[
        Path | None, typer.Option("--root", help="Folder of CIFAR-10.", show_default="ASRNORM_DATA")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Severities of cifar or imagenet, for a folder.", show_default="by size"),
    ] = None,
) -> None:
    """Generate CIFAR-10-C, or corrupt a folder of images and keep its tree.

    Example: `asrnorm data corrupt cifar10c --workers 2`, `asrnorm data corrupt photos --out foggy --corruption fog`.
    Started again, the same call goes on where it stopped.
    """
    if target != _CIFAR:
        if root is not None or workers is not None:
            raise typer.BadParameter("--root and --workers are of cifar10c: leave them out for a folder")
        level = _DEFAULT_SEVERITY if severity is None else severity
        _corrupt_folder(Path(target), out, corruption or [], level, seed, preset)
        return
    if severity is not None or preset is not None:
        raise typer.BadParameter("cifar10c has all five severities of its own: leave out --severity and --preset")
    from asrnorm.data.corruptions import generate_cifar10c

    place = root or data_folder()
    folder = out or place / _ARCHIVE_FOLDER
    files = generate_cifar10c(place, folder, corruptions=corruption or None, seed=seed, workers=workers)
    made = sum(not file.skipped for file in files)
    equal = sum(file.published for file in files)
    typer.echo(f"{folder}: {made} files written, {len(files) - made} there already; {equal} equal the published ones")


def _corrupt_folder(
    source: Path, out: Path | None, corruptions: list[str], severity: int, seed: int, preset: str | None
) -> None:
    if not source.is_dir():
        raise InputError(f"{source} is no folder; give one with images, or {_CIFAR}")
    if out is None:
        raise typer.BadParameter("a folder of images needs --out DIR")
    if len(corruptions) != 1:
        raise typer.BadParameter("a folder of images needs one --corruption")
    from asrnorm.data.corruptions import corrupt_folder

    written = corrupt_folder(source, out, corruptions[0], severity, seed, preset=preset)
    typer.echo(f"{out}: {len(written)} images")
