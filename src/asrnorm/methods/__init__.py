"""Training methods; importing one registers it."""

from typing import Any

from asrnorm.core.randomness import keyed_generator as keyed_generator
from asrnorm.methods.ada import ADA as ADA
from asrnorm.methods.ada import MEADA as MEADA
from asrnorm.methods.adversarial_dropout import AdversarialDropout as AdversarialDropout
from asrnorm.methods.base import ERM as ERM
from asrnorm.methods.base import METHODS as METHODS
from asrnorm.methods.base import Batch as Batch
from asrnorm.methods.base import Images as Images
from asrnorm.methods.base import Method as Method
from asrnorm.methods.consistency import Consistency as Consistency
from asrnorm.methods.contrastive import CCSA as CCSA
from asrnorm.methods.contrastive import DSNE as DSNE
from asrnorm.methods.cutout import Cutout as Cutout
from asrnorm.methods.dropblock import DropBlock as DropBlock
from asrnorm.methods.jigen import JiGen as JiGen
from asrnorm.methods.m_ada import MADA as MADA
from asrnorm.methods.metareg import MetaReg as MetaReg
from asrnorm.methods.own_loop import OwnLoop
from asrnorm.methods.pgd import PGD as PGD
from asrnorm.methods.rsc import RSC as RSC
from asrnorm.methods.rsda import ESDA as ESDA
from asrnorm.methods.rsda import RDA as RDA
from asrnorm.methods.rsda import RSDA as RSDA
from asrnorm.methods.st import ST as ST
from asrnorm.methods.st import TTT as TTT


def list_methods() -> tuple[str, ...]:
    """Return the names of all methods.

    Example:
        >>> "erm" in list_methods()
        True
    """
    return METHODS.names()


def create_method(name: str, *, seed: int = 0, **options: Any) -> Method:
    """Return a training method for a loop of your own; its `loss` takes a `Batch` or a pair of images and labels.

    Raises:
        UnknownNameError: the name or an option is unknown; the message names the nearest one.
        InputError: an option has a value out of range.

    Example:
        >>> create_method("erm").seed
        0
    """
    METHODS.check(name, options)
    method = METHODS[name](**options)
    method.seed = seed
    OwnLoop(method)
    return method
