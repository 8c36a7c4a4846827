"""Which output of a model stands for which folder of images."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, first_line
from asrnorm.data.image_table import to_nfc

_MOST_NAMED = 4
_SEVERAL = -(2**31)  # in place of an output, where a name has more than one


def map_classes(
    folders: Sequence[str], num_classes: int, *, names: Sequence[str] | None = None, file: Path | None = None
) -> dict[str, int]:
    """Return the output of each class folder.

    Args:
        folders: names of the class folders, in order.
        num_classes: outputs of the model.
        names: of the outputs, where the model knows them.
        file: JSON that says it for a model that does not know these folders: a list of names in the order of outputs,
            a mapping of names to outputs, or ImageNet's `{"0": ["n01440764", "tench"], ...}`.

    Raises:
        InputError: a folder without an output, an output that does not exist, or numbers that differ.

    Example:
        >>> map_classes(["cat", "dog"], 2), map_classes(["dog"], 3, names=["bird", "cat", "dog"])
        ({'cat': 0, 'dog': 1}, {'dog': 2})
    """
    if file is not None and not knows_classes(folders, names):
        outputs, where = _read(file), str(file)
    elif names is not None:
        outputs, where = {to_nfc(name): index for index, name in enumerate(names)}, "the classes of the run"
    elif len(folders) != num_classes:
        raise InputError(
            f"the model has {num_classes} outputs, the images {len(folders)} classes ({_shorten(folders)}); "
            "give --classes FILE, JSON that maps the names of the folders to outputs"
        )
    elif list(folders) != sorted(folders):  # numbers, in the order of numbers
        raise InputError(
            f"folders of numbers: whether output 2 is folder {folders[2]}, or {sorted(folders)[2]} as where names are "
            "sorted as text (torchvision's ImageFolder), the model does not say; give --classes FILE, a JSON list of "
            "the names in the order of outputs"
        )
    else:
        return {name: index for index, name in enumerate(folders)}
    twice = [name for name in folders if outputs.get(to_nfc(name)) == _SEVERAL]
    if twice:
        raise InputError(f"{where}: has several outputs called {twice[0]}; name the folder by what tells them apart")
    lacking = [name for name in folders if to_nfc(name) not in outputs]
    if lacking:
        raise InputError(f"{where}: has no {_shorten(lacking)}; it has {_shorten(list(outputs))}")
    found = {name: outputs[to_nfc(name)] for name in folders}
    beyond = [name for name in folders if not 0 <= found[name] < num_classes]
    if beyond:
        raise InputError(f"{where}: {beyond[0]} is output {found[beyond[0]]}, but the model has 0 to {num_classes - 1}")
    return found


def knows_classes(folders: Sequence[str], names: Sequence[str] | None) -> bool:
    """Tell whether a model knows all folders by the names of its outputs.

    Example:
        >>> knows_classes(["dog"], ["cat", "dog"]), knows_classes(["dog"], None)
        (True, False)
    """
    return names is not None and set(map(to_nfc, folders)) <= set(map(to_nfc, names))


def _read(file: Path) -> dict[str, int]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({first_line(error)})") from None
    outputs = _to_outputs(content)
    if not outputs:
        raise InputError(f"{file}: expected a list of names, or a mapping of names to outputs")
    return outputs


def _to_outputs(content: Any) -> dict[str, int]:
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return _unite((name, index) for index, name in enumerate(content))
    if not isinstance(content, dict):
        return {}
    if all(type(index) is int for index in content.values()):
        return _unite(content.items())
    if all(key.isdecimal() and isinstance(value, str | list) for key, value in content.items()):
        named = {int(key): [value] if isinstance(value, str) else value for key, value in content.items()}
        return _unite((name, index) for index, several in named.items() for name in several if isinstance(name, str))
    return {}


def _unite(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """A mapping in which a name of several outputs is marked: ImageNet has two birds and machines called crane."""
    outputs: dict[str, int] = {}
    for name, index in ((to_nfc(name), index) for name, index in pairs):
        outputs[name] = index if outputs.get(name, index) == index else _SEVERAL
    return outputs


def _shorten(names: Sequence[str]) -> str:
    rest = f", ... ({len(names)})" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + rest
