"""The images of an audit, and which output of a model each of their classes is."""

import hashlib
import logging
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, count_of, first_line, shorten_list
from asrnorm.core.reading import read_json
from asrnorm.data.class_names import keep_known
from asrnorm.data.folder_listing import check_distinct_files, list_one_domain, order_classes
from asrnorm.data.image import read_image
from asrnorm.data.image_set import balanced_subset
from asrnorm.data.image_table import Sample, to_nfc

_AMBIGUOUS = -(2**31)  # stands for the output of a name that several outputs have
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LabeledImages:
    """Decoded images with the classes of their folders."""

    images: NDArray[np.uint8]  # (n, h, w, 3)
    labels: NDArray[np.int64]  # (n,), indices into `classes`
    classes: tuple[str, ...]  # names of the folders, in order
    skipped: tuple[str, ...] = ()  # one line for each file that could not be read
    num_found: int = 0  # number of images in the folder, of which these are a subset

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def fingerprint(self) -> str:
        """A hash of pixels, labels and class names, independent of where the files are."""
        digest = hashlib.sha256("\0".join(self.classes).encode("utf-8", "surrogateescape"))
        digest.update(repr(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()[:16]


def read_images(
    folder: Path,
    size: tuple[int, int],
    limit: int | None = None,
    known: Collection[str] = (),
    *,
    only_known: bool = False,
) -> LabeledImages:
    """Read images `<class>/<image>` or of a table, at most `limit`, spread evenly over classes and within each class.

    Every image is resized to `size`, height and width. Files that cannot be read are skipped and counted; empty class
    folders are skipped with a warning. Folders of `known` classes may contain folders; `only_known` leaves out images
    of other classes, with a warning.
    """
    samples = list_one_domain(folder, known=set(map(to_nfc, known)), skip_empty=True)
    check_distinct_files(folder, samples)
    if only_known:
        names = tuple(map(to_nfc, known))
        advice = "call folders as the run calls its classes, or map them by --classes FILE"
        samples = keep_known(samples, names, folder, unknown="skip", advice=advice)
    if len(domains := dict.fromkeys(sample.domain for sample in samples)) > 1:
        _log.warning("%s: images of several domains are audited together: %s", folder, ", ".join(domains))
    spelled = {to_nfc(sample.label): sample.label for sample in samples}  # a table may have several domains
    classes = order_classes(spelled.values())
    if len(classes) < 2:
        raise InputError(f"{folder}: one class ({classes[0]}); an audit needs at least two folders of images")
    labels = {to_nfc(name): index for index, name in enumerate(classes)}
    most = len(samples) if limit is None else limit
    chosen = balanced_subset([labels[to_nfc(sample.label)] for sample in samples], most)
    images, read, skipped = [], list[Sample](), []
    for sample in (samples[row] for row in chosen):
        try:
            images.append(read_image(sample.path, size=size))
            read.append(sample)
        except InputError as error:
            skipped.append(str(error))
    if not read:
        raise InputError(f"{folder}: none of {count_of(len(skipped), 'image')} can be read; the first: {skipped[0]}")
    return LabeledImages(
        images=np.stack(images),
        labels=np.array([labels[to_nfc(sample.label)] for sample in read], np.int64),
        classes=classes,
        skipped=tuple(skipped),
        num_found=len(samples),
    )


def map_classes(
    folders: Sequence[str], num_classes: int, *, names: Sequence[str] | None = None, file: Path | None = None
) -> dict[str, int]:
    """Return the output of each class folder; `names` are those of the outputs, if the model knows them.

    `file` is JSON for a model that does not know these folders: a list of names in the order of outputs, a mapping of
    names to outputs, or ImageNet's `{"0": ["n01440764", "tench"], ...}`.
    """
    if file is not None and not knows_classes(folders, names):
        outputs, source = _read_outputs(file), str(file)
    elif names is not None:
        outputs, source = {to_nfc(name): index for index, name in enumerate(names)}, "the classes of the run"
    elif len(folders) != num_classes:
        raise InputError(
            f"the model has {num_classes} outputs, the images {len(folders)} classes ({shorten_list(folders)}); "
            "give --classes FILE, JSON that maps the names of the folders to outputs"
        )
    elif list(folders) != (as_text := sorted(folders)):  # numbers, in numerical order
        first = next(index for index, name in enumerate(folders) if name != as_text[index])
        raise InputError(
            f"the folders are numbers: output {first} may be folder {folders[first]}, or {as_text[first]} where names "
            "are sorted as text (torchvision's ImageFolder); give --classes FILE, a JSON list of the names in the "
            "order of outputs"
        )
    else:
        return {name: index for index, name in enumerate(folders)}
    found = {name: outputs[to_nfc(name)] for name in folders if to_nfc(name) in outputs}
    for name, output in found.items():
        if output == _AMBIGUOUS:
            raise InputError(f"{source}: has several outputs called {name}; name the folder by what tells them apart")
    if missing := [name for name in folders if name not in found]:
        raise InputError(f"{source}: has no {shorten_list(missing)}; it has {shorten_list(list(outputs))}")
    for name, output in found.items():
        if not 0 <= output < num_classes:
            raise InputError(f"{source}: {name} is output {output}, but the model has 0 to {num_classes - 1}")
    return found


def knows_classes(folders: Sequence[str], names: Sequence[str] | None) -> bool:
    """Return whether the names of a model's outputs include all folders."""
    return names is not None and set(map(to_nfc, folders)) <= set(map(to_nfc, names))


def _read_outputs(file: Path) -> dict[str, int]:
    """Return a mapping in which names of several outputs are marked: ImageNet calls a bird and a machine crane."""
    try:
        content = read_json(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except (OSError, InputError) as error:
        raise InputError(f"{file}: not JSON ({first_line(error)})") from None
    pairs: Iterable[tuple[str, int]] = ()
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        pairs = ((name, index) for index, name in enumerate(content))
    elif isinstance(content, dict) and all(type(index) is int for index in content.values()):
        pairs = content.items()
    elif isinstance(content, dict) and all(
        re.fullmatch("[0-9]{1,18}", key) and isinstance(value, str | list) for key, value in content.items()
    ):
        named = {int(key): [value] if isinstance(value, str) else value for key, value in content.items()}
        pairs = ((name, index) for index, names in named.items() for name in names if type(name) is str)
    outputs: dict[str, int] = {}
    for name, index in pairs:
        known = outputs.setdefault(to_nfc(name), index)
        outputs[to_nfc(name)] = index if known == index else _AMBIGUOUS
    if not outputs:
        raise InputError(f"{file}: expected a list of names, or a mapping of names to outputs")
    return outputs
