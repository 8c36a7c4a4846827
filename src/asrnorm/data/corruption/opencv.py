"""OpenCV, which four of the corruptions need."""

from importlib import import_module
from typing import Any

from asrnorm.errors import MissingDependencyError


def import_opencv(name: str) -> Any:
    """Return the module `cv2`.

    Raises:
        MissingDependencyError: it is not installed; the line says what to install.
    """
    try:
        return import_module("cv2")
    except ImportError:
        raise MissingDependencyError(f"corruption {name!r} needs OpenCV: pip install opencv-python-headless") from None
