"""A suite of a few small images in memory: what evaluation and commands are tried on."""

import numpy as np

from asrnorm.data import ImageSet, Part, Suite


def make_images(count, *, num_classes=4, size=(8, 8), seed=0):
    """Images whose class shows: a bright quarter, on noise."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) % num_classes
    images = generator.integers(0, 160, (count, *size, 3), np.uint8)
    height, width = size[0] // 2, size[1] // 2
    for image, label in zip(images, labels, strict=True):
        top, left = label // 2 * height, label % 2 * width
        image[top : top + height, left : left + width] += 60
    return ImageSet(images, labels.astype(np.int64))


class ToySuite(Suite):
    """One source and as many targets as named; the target `absent` is missing."""

    name = "toy"

    def __init__(self, *, root=None, targets=("bright", "dark"), classes=("a", "b", "c", "d"), size=(8, 8), count=30):
        super().__init__(root=root)
        self._targets, self._classes, self._size, self._count = targets, classes, size, count

    @property
    def classes(self):
        return self._classes

    @property
    def image_size(self):
        return self._size

    @property
    def sources(self):
        return ("home",)

    def parts(self):
        targets = (Part(name, "target", name != "absent", "in memory") for name in self._targets)
        return Part("home", "source", True, "in memory"), *targets

    def load_train(self):
        return make_images(self._count, size=self._size, seed=1)

    def load_validation(self):
        return None

    def load_source_test(self):
        return make_images(self._count, size=self._size, seed=2)

    def load_target(self, name):
        return make_images(self._count, size=self._size, seed=3 + self._targets.index(name))
