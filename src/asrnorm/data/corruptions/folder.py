"""Corrupt a folder of images, keeping its tree."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

from PIL import Image

from asrnorm.core.errors import InputError, count_of
from asrnorm.core.files import write_whole
from asrnorm.core.progress import PartProgress
from asrnorm.data.corruptions.base import CORRUPTIONS, corrupt
from asrnorm.data.folder_listing import find_images
from asrnorm.data.image import read_image

_CALL_FILE = ".corrupt.json"  # records in `dst` the call that wrote its images


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
    """Corrupt every image below `src` and write it as PNG to the same path below `dst`; return the files written.

    After an interruption, such as a damaged image, the same call resumes. The random stream of an image depends on its
    path below `src`, so that adding or removing other images changes nothing. Files are read by `read_image`:
    transparent parts become white, 16 bits become 8, and EXIF rotation is applied. `progress` shows a bar, or lines
    where there is no terminal, on standard error; the other arguments are those of `corrupt`.

    Raises:
        InputError: there is no image, one cannot be read, two would be written to the same file, a file exists, or
            `dst` lies within `src`.
        StorageError: the disk is full.
        UnknownNameError: there is no such corruption, preset or option.
    """
    source, target = Path(src), Path(dst)
    CORRUPTIONS.check(name, options)
    if source.resolve() in (target.resolve(), *target.resolve().parents):
        raise InputError(f"{target} lies within {source}: choose a folder outside it")
    images = find_images(source)
    destinations = [(target / path).with_suffix(".png") for path in images]
    sources: dict[Path, Path] = {}
    for path, destination in zip(images, destinations, strict=True):
        if (other := sources.setdefault(destination, path)) != path:
            raise InputError(f"{other} and {path} would both become {destination.name}: rename one")
    call = json.dumps([os.fsencode(source.resolve()).hex(), name, severity, seed, preset, options], default=str)
    existing = {path for path in destinations if os.path.lexists(path)}
    if existing and not _is_resumed(target, call):
        raise InputError(
            f"{min(existing)} exists ({len(existing):,} of {len(images):,} do): choose another folder, or remove it"
        )
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file: give a folder to write to")
    with PartProgress(len(images), "images", shown=progress) as bar:
        bar.begin(name)
        for destination, path in sources.items():
            if destination in existing and (source / path).stat().st_mtime_ns <= destination.stat().st_mtime_ns:
                bar.skip(1)
                continue
            pixels = read_image(source / path)
            index = int.from_bytes(hashlib.blake2b(os.fsencode(path.as_posix()), digest_size=8).digest(), "little")
            corrupted = corrupt(
                pixels[None], name, severity=severity, seed=seed, preset=preset, indices=[index], **options
            )
            if not existing:
                target.mkdir(parents=True, exist_ok=True)
                write_whole(target / _CALL_FILE, call)
            png = io.BytesIO()
            Image.fromarray(corrupted[0]).save(png, "PNG")
            write_whole(destination, png.getvalue())
            existing.add(destination)
            bar.advance(1)
        bar.say(f"{name}: {count_of(len(images), 'image')} in {target}")
    return destinations


def _is_resumed(target: Path, call: str) -> bool:
    """Return whether the images in the folder are from the same call."""
    try:
        return (target / _CALL_FILE).read_text() == call
    except (OSError, ValueError):
        return False
