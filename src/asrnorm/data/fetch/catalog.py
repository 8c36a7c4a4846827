"""What can be fetched: every public set by the word that the command line knows it by."""

from asrnorm.core.errors import UnknownNameError, describe_unknown
from asrnorm.data.fetch.digit_entry import MNIST, MNIST_M, SVHN, SYN, USPS
from asrnorm.data.fetch.entry import PublicSet
from asrnorm.data.fetch.image_entry import CIFAR10, CIFAR10C, FROST, PACS, RESNET18

CATALOG = {entry.name: entry for entry in (MNIST, USPS, SVHN, MNIST_M, SYN, CIFAR10, CIFAR10C, FROST, PACS, RESNET18)}


def find_set(name: str) -> PublicSet:
    """Return the set of that name.

    Raises:
        UnknownNameError: there is none; the message names the nearest.

    Example:
        >>> find_set("cifar10").title
        'CIFAR-10'
        >>> find_set("cifar")
        Traceback (most recent call last):
        asrnorm.core.errors.UnknownNameError: unknown data set 'cifar'; did you mean 'cifar10'? Known: cifar10, ...
    """
    try:
        return CATALOG[name]
    except KeyError:
        raise UnknownNameError(describe_unknown("data set", name, CATALOG)) from None


def names() -> tuple[str, ...]:
    """Return the names of all sets, in the order of the catalog.

    Example:
        >>> names()[:2]
        ('mnist', 'usps')
    """
    return tuple(CATALOG)
