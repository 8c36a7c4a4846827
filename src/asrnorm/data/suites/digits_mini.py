"""Digits without a download: 5,000 real MNIST images and four shifted domains, from wheels on PyPI."""

from pathlib import Path

import numpy as np

from asrnorm.core.errors import InputError, install_command
from asrnorm.data.cache import EntryWriter, cache_folder, open_entry
from asrnorm.data.image_set import ImageSet
from asrnorm.data.suites.base import SUITES, Part, Suite
from asrnorm.data.synthetic.sources import missing_libraries, provenance

TARGETS = ("uci", "blended", "rendered", "inverted")
SPLITS = ("mnist_train", "mnist_val", "mnist_test")


@SUITES.register("digits_mini")
class DigitsMini(Suite):
    """5,000 MNIST images as source; UCI digits, blended, rendered and inverted digits as targets; no download.

    Args:
        root: folder of the cache; `None` is `ASRNORM_DATA`.
        seed: of the generated images.
    """

    name = "digits_mini"
    classes = tuple("0123456789")
    image_size = (32, 32)
    sources = ("mnist",)

    def __init__(self, *, root: str | Path | None = None, seed: int = 0) -> None:
        super().__init__(root=root)
        if seed < 0:
            raise InputError(f"seed of suite 'digits_mini' must be at least 0, not {seed}")
        self.seed = seed

    def parts(self) -> tuple[Part, ...]:
        """Return all domains as present if the wheels that they are made from are installed."""
        missing = missing_libraries()
        detail = f"needs {', '.join(missing)}: {install_command('data')}" if missing else "from installed wheels"
        roles = [("mnist", "source"), *((name, "target") for name in TARGETS)]
        return tuple(Part(name, role, not missing, detail) for name, role in roles)

    def load_train(self) -> ImageSet:
        """Return the training images."""
        return self._open("mnist_train")

    def load_validation(self) -> ImageSet:
        """Return the validation images."""
        return self._open("mnist_val")

    def load_source_test(self) -> ImageSet:
        """Return the test images of the source."""
        return self._open("mnist_test")

    def load_target(self, name: str) -> ImageSet:
        """Return one target domain."""
        return self._open(name)

    def _open(self, domain: str) -> ImageSet:
        name, fingerprint = f"digits_mini-s{self.seed}", {"makers": provenance()}
        entry = open_entry(name, fingerprint=fingerprint, build=self._build, folder=cache_folder(self.root))
        return ImageSet(entry[f"{domain}-images"], np.asarray(entry[f"{domain}-labels"]))

    def _build(self, writer: EntryWriter) -> None:
        from asrnorm.data.synthetic import build_digits_mini

        domains = build_digits_mini(self.seed)
        for name in (*SPLITS, *TARGETS):
            images, labels = domains[name]
            writer.add(f"{name}-images", images)
            writer.add(f"{name}-labels", np.asarray(labels, np.int64))
