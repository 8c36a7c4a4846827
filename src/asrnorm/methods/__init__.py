"""Training methods: one line a method, which exports and registers it."""

from typing import Any

from asrnorm.methods.ada import ADA as ADA
from asrnorm.methods.base import ERM as ERM
from asrnorm.methods.base import METHODS as METHODS
from asrnorm.methods.base import Batch as Batch
from asrnorm.methods.base import Images as Images
from asrnorm.methods.base import Method as Method
from asrnorm.methods.m_ada import MADA as MADA
from asrnorm.methods.me_ada import MEADA as MEADA
from asrnorm.methods.pgd import PGD as PGD
from asrnorm.methods.randomness import keyed_generator as keyed_generator
from asrnorm.methods.rsc import RSC as RSC
from asrnorm.methods.rsda import ESDA as ESDA
from asrnorm.methods.rsda import RDA as RDA
from asrnorm.methods.rsda import RSDA as RSDA


def list_methods() -> tuple[str, ...]:
    """Return the names of all methods.

    Example:
        >>> "erm" in list_methods()
        True
    """
    return METHODS.names()


def create_method(name: str, *, seed: int = 0, **options: Any) -> Method:
    """Return a training method by its registry name; a wrong name or option is answered with the nearest right one.

    Example:
        >>> create_method("erm").seed
        0
    """
    METHODS.check(name, options)
    method = METHODS[name](**options)
    method.seed = seed
    return method
