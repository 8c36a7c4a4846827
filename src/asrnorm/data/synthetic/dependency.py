"""Libraries whose wheels carry the raw material: imported where they are used, with one line where they are missing."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from asrnorm.errors import MissingDependencyError


def require(module: str, distribution: str, purpose: str) -> ModuleType:
    """Import `module`, or say in one line what to install.

    Args:
        module: dotted name to import.
        distribution: what `pip install` calls it.
        purpose: what it is needed for, as the subject of the error line.

    Raises:
        MissingDependencyError: it cannot be imported.

    Example:
        >>> require("json", "json", "nothing").__name__
        'json'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(f"{purpose} needs {distribution} ({error}); pip install {distribution}") from error


def package_file(package: str, relative: str, distribution: str, purpose: str) -> Path:
    """Return a file inside an installed package, or say in one line what to install.

    Raises:
        MissingDependencyError: the package or the file in it is missing.

    Example:
        >>> package_file("json", "decoder.py", "json", "nothing").name
        'decoder.py'
    """
    origin = require(package, distribution, purpose).__file__
    path = Path(origin or "").parent / relative
    if not path.is_file():
        raise MissingDependencyError(
            f"{purpose} needs {relative} of {distribution}, which this installation lacks; "
            f"pip install --force-reinstall {distribution}"
        )
    return path
