"""Digits: train on MNIST, test on SVHN, MNIST-M, SYN and USPS.

The protocol of Volpi et al. (ADA, 2018; RSDA, 2019): 32x32 RGB, resized with Lanczos on uint8, not normalized.
`docs/data/digits.md` has the sources of every choice.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown
from asrnorm.data.cache import EntryWriter, cache_folder, describe_files, open_entry
from asrnorm.data.image import resize_images
from asrnorm.data.image_set import ImageSet
from asrnorm.data.readers import read_digit_mat, read_idx, read_listing, read_usps
from asrnorm.data.suites.base import SUITES, Part, Suite, find_first, warn_of_count
from asrnorm.data.synthetic.sources import provenance

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]

SIZE = (32, 32)
# Rows of the 60,000 published training images. TensorFlow's reader, which the originals used, keeps the first 5,000 for
# validation; RSDA trains on the other 55,000 and ADA on the first 10,000 of those.
SUBSETS = {"rsda": slice(5_000, 60_000), "ada": slice(5_000, 15_000), "all": slice(0, None)}
VALIDATION = slice(0, 5_000)
NUM_SYN = 9_553  # images in the public SYN test file, and in its stand-in
# Images of each set as published
_PUBLISHED = {
    "mnist-train": 60_000,
    "mnist-t10k": 10_000,
    "svhn": 26_032,
    "mnist_m": 9_001,
    "syn": NUM_SYN,
    "usps": 2_007,
}

_MNIST_NAMES = tuple(f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
_MNIST_FOLDERS = ("MNIST/raw", "MNIST", "mnist", "mnist/raw")
# Targets of one file: its names, the published one first, the folders in which copies have it, and its reader
_FILES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[Path], Arrays]]] = {
    "svhn": (("test_32x32.mat",), ("svhn", "SVHN", "."), read_digit_mat),
    "syn": (("synth_test_32x32.mat",), ("syn", "SYN", "synth", "synthetic_digits", "SynthDigits", "."), read_digit_mat),
    "usps": (("usps.t.bz2", "usps.t"), ("usps", "USPS", "."), read_usps),
}


@SUITES.register("digits")
class Digits(Suite):
    """MNIST as source; SVHN, MNIST-M, SYN and USPS as targets; 32x32 RGB.

    Args:
        root: the data folder; `None` is `ASRNORM_DATA`.
        subset: `rsda` (55,000 training images), `ada` (10,000 of them) or `all` (60,000 and no validation set).
        mnist_m: `published` reads the public test set; `generated` makes a similar set from the MNIST test images and
            photographs, the target `mnist_m_like`, whose numbers do not compare with the published ones.
        syn_like: add a generated stand-in for SYN, whose public file is hard to get, as the target `syn_like`.
        seed: of the generated images.
    """

    name = "digits"
    classes = tuple("0123456789")
    image_size = SIZE
    sources = ("mnist",)

    def __init__(
        self,
        *,
        root: str | Path | None = None,
        subset: str = "rsda",
        mnist_m: str = "published",
        syn_like: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(root=root)
        if subset not in SUBSETS:
            raise UnknownNameError(describe_unknown("subset of suite 'digits',", subset, SUBSETS))
        if mnist_m not in ("published", "generated"):
            raise UnknownNameError(describe_unknown("mnist_m of suite 'digits',", mnist_m, ("published", "generated")))
        if seed < 0:
            raise InputError(f"seed of suite 'digits' must be at least 0, not {seed}")
        self.subset, self.mnist_m, self.syn_like, self.seed = subset, mnist_m, syn_like, seed

    @property
    def edition(self) -> str:
        """Which targets are generated, and a digest of the code and libraries; empty if all are published."""
        generated = ["mnist_m_like"] * (self.mnist_m == "generated") + ["syn_like"] * self.syn_like
        digest = hashlib.sha256("\n".join(provenance()).encode()).hexdigest()[:7]
        return f"{' and '.join(generated)} generated, seed {self.seed}, by {digest}" if generated else ""

    def parts(self) -> tuple[Part, ...]:
        """Return which domains are present, from file names alone; targets in the order of the paper's table."""
        mnist = self._mnist_files()
        parts = [self._part("mnist", "source", mnist, "MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte")]
        parts.append(self._file_part("svhn"))
        if self.mnist_m == "generated":
            parts.append(Part("mnist_m_like", "target", bool(mnist), "generated from the MNIST test images"))
        else:
            published = "mnist_m/mnist_m_test and mnist_m/mnist_m_test_labels.txt"
            parts.append(self._part("mnist_m", "target", self._mnist_m_files(), published))
        parts.append(self._file_part("syn"))
        if self.syn_like:
            parts.append(Part("syn_like", "target", True, "generated stand-in, not the published SYN"))
        return (*parts, self._file_part("usps"))

    def load_train(self) -> ImageSet:
        """Return the chosen subset of the training images."""
        train = self._load_mnist("train")
        rows = SUBSETS[self.subset]
        if rows.stop and len(train) < rows.stop:
            needed = f"subset={self.subset!r}, which takes rows {rows.start:,} to {rows.stop - 1:,}"
            raise InputError(f"{self._mnist_files()[0]}: {len(train):,} images, too few for {needed}; fetch it again")
        return train.take(rows)

    def load_validation(self) -> ImageSet | None:
        """Return the first 5,000 training images, or nothing if all are trained on."""
        return None if self.subset == "all" else self._load_mnist("train").take(VALIDATION)

    def load_source_test(self) -> ImageSet:
        """Return the MNIST test images."""
        return self._load_mnist("t10k")

    def load_target(self, name: str) -> ImageSet:
        """Return one target domain."""
        if name == "mnist_m":
            return self._load_mnist_m()
        if name in _FILES:
            (file,) = self._find_file(name)
            return self._open(name, [file], lambda: _FILES[name][2](file))
        from asrnorm.data.synthetic import build_mnist_m, build_syn_like

        if name == "syn_like":
            return self._open(f"syn_like-s{self.seed}", (), lambda: build_syn_like(NUM_SYN, self.seed), provenance())
        files = self._mnist_files()[2:]
        return self._open(
            f"mnist_m_like-s{self.seed}", files, lambda: build_mnist_m(*_read_mnist(*files), self.seed), provenance()
        )

    def _load_mnist(self, split: str) -> ImageSet:
        files = [path for path in self._mnist_files() if path.name.startswith(split)]
        return self._open(f"mnist-{split}", files, lambda: _read_mnist(*files))

    def _load_mnist_m(self) -> ImageSet:
        folder, listing = self._mnist_m_files()
        entries = read_listing(listing, labels=range(10))
        paths = [folder / name for name, _ in entries]

        def build(writer: EntryWriter) -> None:
            writer.decode(paths, SIZE)
            writer.add("labels", np.array([label for _, label in entries], np.int64))

        return self._open_entry("mnist_m", [listing, *paths], build)

    def _open(
        self, name: str, files: Sequence[Path], read: Callable[[], Arrays], generator: Sequence[str] = ()
    ) -> ImageSet:
        def build(writer: EntryWriter) -> None:
            images, labels = read()
            writer.add("images", resize_images(images, SIZE))
            writer.add("labels", np.asarray(labels, np.int64))

        return self._open_entry(name, files, build, generator)

    def _open_entry(
        self, name: str, files: Sequence[Path], build: Callable[[EntryWriter], None], generator: Sequence[str] = ()
    ) -> ImageSet:
        # "makers" is a name that existing caches have.
        fingerprint = {"files": describe_files(files), "size": SIZE, "resample": "lanczos", "makers": list(generator)}
        entry = open_entry(f"digits-{name}", fingerprint=fingerprint, build=build, folder=cache_folder(self.root))
        data = ImageSet(entry["images"], np.asarray(entry["labels"]))
        if name in _PUBLISHED:
            warn_of_count(files[0], len(data), _PUBLISHED[name])
        return data

    def _file_part(self, name: str) -> Part:
        return self._part(name, "target", self._find_file(name), f"{name}/{_FILES[name][0][0]}")

    def _part(self, name: str, role: str, files: tuple[Path, ...], published: str) -> Part:
        if files:
            return Part(name, role, True, str(files[0]))
        return Part(name, role, False, f"no {published} in {self.root}; try: asrnorm data fetch {name}")

    def _mnist_files(self) -> tuple[Path, ...]:
        """Return training images and labels, test images and labels; nothing if one of the four is missing."""
        for folder in _MNIST_FOLDERS:
            files = [find_first(self.root / folder, *_spellings(name)) for name in _MNIST_NAMES]
            if all(files):
                return tuple(path for path in files if path is not None)
        return ()

    def _find_file(self, name: str) -> tuple[Path, ...]:
        names, folders, _ = _FILES[name]
        found = find_first(self.root, *(f"{folder}/{file}" for folder in folders for file in names))
        return () if found is None else (found,)

    def _mnist_m_files(self) -> tuple[Path, ...]:
        for folder in (self.root / "mnist_m", self.root / "MNIST-M", self.root):
            images, labels = folder / "mnist_m_test", folder / "mnist_m_test_labels.txt"
            if images.is_dir() and labels.is_file():
                return images, labels
        return ()


def _spellings(name: str) -> tuple[str, ...]:
    dotted = name.replace("-idx", ".idx")  # how some archives unpack
    return name, f"{name}.gz", dotted, f"{dotted}.gz"


def _read_mnist(images_path: Path, labels_path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    images, labels = read_idx(images_path, ndim=3), read_idx(labels_path, ndim=1)
    if len(images) != len(labels):
        raise InputError(f"{labels_path}: {len(labels):,} labels for the {len(images):,} images of {images_path.name}")
    if images.shape[1:] != (28, 28):
        raise InputError(f"{images_path}: images of {images.shape[1]}x{images.shape[2]}; MNIST has 28x28")
    if labels.max() > 9:
        raise InputError(f"{labels_path}: a label is {labels.max()}; MNIST has 0 to 9")
    return images, labels.astype(np.int64)
