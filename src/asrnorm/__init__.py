"""ASR-Norm and single domain generalization: one source domain in training, unseen domains in use.

Public names are loaded at first use, so that `import asrnorm` and the command line start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from asrnorm.conversion import calibrate as calibrate
    from asrnorm.conversion import confine as confine
    from asrnorm.conversion import conversion_summary as conversion_summary
    from asrnorm.conversion import convert as convert
    from asrnorm.conversion import insert as insert
    from asrnorm.conversion import reestimate as reestimate
    from asrnorm.conversion import remove as remove
    from asrnorm.conversion import revert as revert
    from asrnorm.core.captured_step import capture as capture
    from asrnorm.data import create_suite as create_suite
    from asrnorm.data import list_suites as list_suites
    from asrnorm.data.augment import augment as augment
    from asrnorm.data.corruptions import corrupt as corrupt
    from asrnorm.data.corruptions.tensors import Corrupt as Corrupt
    from asrnorm.methods import Batch as Batch
    from asrnorm.methods import create_method as create_method
    from asrnorm.methods import list_methods as list_methods
    from asrnorm.models import create_model as create_model
    from asrnorm.models import from_pretrained as from_pretrained
    from asrnorm.models import list_models as list_models
    from asrnorm.models import load as load
    from asrnorm.models import push_to_hub as push_to_hub
    from asrnorm.models import save as save
    from asrnorm.models import save_pretrained as save_pretrained
    from asrnorm.norms import ASRNorm2d as ASRNorm2d
    from asrnorm.norms import create_norm as create_norm
    from asrnorm.norms import list_norms as list_norms
    from asrnorm.recipes import list_recipes as list_recipes
    from asrnorm.recipes import recipe as recipe
    from asrnorm.training import train as train

_HOME = {
    "ASRNorm2d": "asrnorm.norms",
    "Batch": "asrnorm.methods",
    "Corrupt": "asrnorm.data.corruptions.tensors",
    "augment": "asrnorm.data.augment",
    "calibrate": "asrnorm.conversion",
    "capture": "asrnorm.core.captured_step",
    "confine": "asrnorm.conversion",
    "conversion_summary": "asrnorm.conversion",
    "convert": "asrnorm.conversion",
    "corrupt": "asrnorm.data.corruptions",
    "create_method": "asrnorm.methods",
    "create_model": "asrnorm.models",
    "create_norm": "asrnorm.norms",
    "create_suite": "asrnorm.data",
    "from_pretrained": "asrnorm.models",
    "insert": "asrnorm.conversion",
    "list_methods": "asrnorm.methods",
    "list_models": "asrnorm.models",
    "list_norms": "asrnorm.norms",
    "list_recipes": "asrnorm.recipes",
    "list_suites": "asrnorm.data",
    "load": "asrnorm.models",
    "push_to_hub": "asrnorm.models",
    "recipe": "asrnorm.recipes",
    "reestimate": "asrnorm.conversion",
    "remove": "asrnorm.conversion",
    "revert": "asrnorm.conversion",
    "save": "asrnorm.models",
    "save_pretrained": "asrnorm.models",
    "train": "asrnorm.training",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'asrnorm' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
