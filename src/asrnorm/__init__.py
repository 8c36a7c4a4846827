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

_NAMES = {
    "conversion": "calibrate confine conversion_summary convert insert reestimate remove revert",
    "core.captured_step": "capture",
    "data": "create_suite list_suites",
    "data.augment": "augment",
    "data.corruptions": "corrupt",
    "data.corruptions.tensors": "Corrupt",
    "methods": "Batch create_method list_methods",
    "models": "create_model from_pretrained list_models load push_to_hub save save_pretrained",
    "norms": "ASRNorm2d create_norm list_norms",
    "recipes": "list_recipes recipe",
    "training": "train",
}
_HOME = {name: f"asrnorm.{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'asrnorm' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
