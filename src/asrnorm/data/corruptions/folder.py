"""Corrupt a folder of images, keeping its tree."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from asrnorm.core.errors import InputError
from asrnorm.core.files import write_whole
from asrnorm.core.progress import PartProgress
from asrnorm.data.corruptions.apply import corrupt
from asrnorm.data.corruptions.base import CORRUPTIONS
from asrnorm.data.corruptions.worker_pool import write_image
from asrnorm.data.folder_listing import find_images
from asrnorm.data.image import read_image

_BEGUN = ".corrupt.json"  # lies in a folder and says what call its images are of


def corrupt_folder(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    name: str,
    severity: int = 3,
    seed: int = 0,
    *,
    preset: str | None = None,
    progress: bool = True,
    **options: Any,
) -> list[Path]:
    """Corrupt every image below `src` and write it as PNG to the same place below `dst`.

    Stopped halfway, by a damaged image for instance, the same call goes on where it was; a file in `dst` says of what.
    An image's randomness is keyed by its path below `src`, so that adding or removing other images changes nothing.
    Files are read as everywhere else: transparent parts become white, 16 bits become 8, and a rotation noted in EXIF is
    carried out.

    Args:
        src: folder of images, of any sizes and depth of tree.
        dst: folder to write to; not `src`, nor within it.
        name: one of `list_corruptions()`.
        severity: 1 to 5.
        seed: of the random corruptions.
        preset: `cifar` or `imagenet`; by default each image's size decides.
        progress: show a bar, or lines where there is no terminal, on standard error.
        **options: as in `corrupt`.

    Returns:
        The files written, in order of their names.

    Raises:
        InputError: there is no image, one cannot be read, two would be written to the same file, or one to a file that
            is there.
        UnknownNameError: there is no such corruption, preset or option.
    """
    source, target = Path(src), Path(dst)
    CORRUPTIONS.check(name, options)
    if source.resolve() in (target.resolve(), *target.resolve().parents):
        raise InputError(f"{target} lies within {source}: choose a folder outside it")
    images = find_images(source)
    destinations = [(target / path).with_suffix(".png") for path in images]
    _refuse_clashes(images, destinations)
    call = json.dumps([os.fsencode(source.resolve()).hex(), name, severity, seed, preset, options], default=str)
    there = {path for path in destinations if os.path.lexists(path)}
    if there and not _was_begun(target, call):
        raise InputError(
            f"{min(there)} is there already ({len(there):,} of {len(images):,}): choose another folder, or remove it"
        )
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file: give a folder to write to")
    with PartProgress(len(images), "images", shown=progress) as bar:
        bar.begin(name)
        for path, destination in zip(images, destinations, strict=True):
            if destination in there and not _is_newer(source / path, destination):
                bar.skip(1)
                continue
            pixels = read_image(source / path)
            index = int.from_bytes(hashlib.blake2b(os.fsencode(path.as_posix()), digest_size=8).digest(), "little")
            corrupted = corrupt(
                pixels[None], name, severity=severity, seed=seed, preset=preset, indices=[index], **options
            )
            if not there:
                target.mkdir(parents=True, exist_ok=True)
                write_whole(target / _BEGUN, call)
            write_image(destination, Image.fromarray(corrupted[0]))
            there.add(destination)
            bar.advance(1)
        bar.say(f"{name}: {len(images)} images in {target}")
    return destinations


def _is_newer(image: Path, made: Path) -> bool:
    """Tell whether an image was changed after another was made of it."""
    return image.stat().st_mtime_ns > made.stat().st_mtime_ns


def _was_begun(target: Path, call: str) -> bool:
    """Tell whether a call of the same source and settings was begun here."""
    try:
        return (target / _BEGUN).read_text() == call
    except (OSError, ValueError):
        return False


def _refuse_clashes(images: Sequence[Path], destinations: Sequence[Path]) -> None:
    taken: dict[Path, Path] = {}
    for path, destination in zip(images, destinations, strict=True):
        if destination in taken:
            raise InputError(f"{taken[destination]} and {path} would both become {destination.name}: rename one")
        taken[destination] = path
