"""Where the pretrained weights of a run lie, and how to get them."""

from pathlib import Path

from asrnorm.core.errors import InputError
from asrnorm.core.settings import data_folder
from asrnorm.data.fetch.catalog import CATALOG


def find_weights(name: str) -> Path:
    """Return the path of a file of weights: as given where absolute, else under the data folder.

    Raises:
        InputError: it is not there; with the way to get it, or another that does, where one is known.
    """
    path = data_folder() / Path(name).expanduser()  # an absolute path stays as it is
    if not path.is_file():
        raise InputError(f"{path}: no such file of weights{_advise(name)}")
    return path


def _advise(weights: str) -> str:
    for name, known in CATALOG.items():
        files = [file.path for layout in known.layouts for file in layout]
        if weights in files:
            return f"; try: asrnorm data fetch {name}, and --set weights={files[0]}"
    if Path(weights).is_file():
        here = Path(weights).absolute()
        return f"; relative paths start at the data folder: to take the one that is here, give {here}"
    return ""
