"""Readers of JSON, YAML and pickles that refuse in one line what would take minutes, gigabytes or the whole stack.

Every file that may come from somebody else is read through here. Python's own readers take numbers of any length,
documents of any depth and devices without an end; what they return fails later, in arithmetic far from the file.
"""

import json
import math
import pickletools
import re
import stat
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from asrnorm.core.errors import InputError, first_line
from asrnorm.core.files import is_open_file

MAX_BYTES = 256 << 20  # of a file of JSON
MAX_YAML = 1 << 20  # bytes; a config has 2,000, and PyYAML takes 15 s for a megabyte without its C library
_MAX_DEPTH = 64  # of lists and mappings in each other
_MAX_BRACKETS = 1000  # of YAML: PyYAML's time grows with the square of their depth
_MAX_DIGITS = 64  # of a number; sexagesimal ones take time that grows with the square of their length
_MAX_HASHED = 100_000  # objects in a tuple of a pickle, repeated ones counted as often as they occur


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the content of a file; raise `InputError` for a device, a named pipe, or more than `most` bytes."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a null byte in the path, which may come from another file
        raise InputError(f"{str(path)!r:.80}: {error}") from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or is_open_file(path)):
        raise InputError(f"{path}: a device or a pipe, not a file")
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{path}: larger than {most:,} bytes, which no such file is")
    return data


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; the errors of `parse_json` do not name the file."""
    return parse_json(read_bytes(path))


def parse_json(text: bytes | str) -> Any:
    """Return JSON values.

    Raises:
        InputError: not JSON in UTF-8, nested more than 64 deep, or a number outside 64 bits.

    Example:
        >>> parse_json('{"step": 10, "loss": NaN}')
        {'step': 10, 'loss': nan}
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        value = json.loads(decoded, parse_int=_parse_int, parse_float=_parse_float)
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError as error:
        raise InputError(first_line(error)) from None
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return value
    raise InputError("nested too deeply")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _parse_int(text: str) -> int:
    return check_int(int(text)) if len(text) <= _MAX_DIGITS else check_int(1 << 64)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InputError(f"the number {text:.20} is too large")
    return value


def check_int(value: int, name: str = "") -> int:
    """Return an integer; raise `InputError` if it does not fit in 64 bits, which torch and NumPy require."""
    if not -(1 << 63) <= value < 1 << 63:
        raise InputError(f"{name}{': ' if name else ''}a whole number of more than 64 bits")
    return value


def read_yaml(path: Path, kind: str = "config file", *, aliases: bool = False) -> Any:
    """Return the content of a YAML file; an `InputError` names the file, and a missing one by its `kind`."""
    try:
        return parse_yaml(read_bytes(path, MAX_YAML).decode("utf-8"), aliases=aliases)
    except FileNotFoundError:
        raise InputError(f"{path}: no such {kind}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not YAML ({error})") from None
    except InputError as error:
        said = str(error)
        raise InputError(said if said.startswith(f"{path}: ") else f"{path}: {said}") from error


def parse_yaml(text: str, *, aliases: bool = False) -> Any:
    """Return YAML values: plain scalars, lists and mappings; `aliases` (`*name`, `<<`) are for our own files.

    Raises:
        InputError: not YAML, a key given twice, a tag, an alias, nested more than 64 deep, or a number outside 64 bits.

    Example:
        >>> parse_yaml("optim: {lr: 0.1}")
        {'optim': {'lr': 0.1}}
    """
    import yaml

    if len(text) > MAX_YAML:
        raise InputError(f"{len(text):,} characters; this is no config")
    if (brackets := text.count("[") + text.count("{")) > _MAX_BRACKETS:
        raise InputError(f"{brackets:,} brackets; this is no config")
    loader_class = _yaml_loader()
    try:
        _check_events(yaml.parse(text, loader_class), aliases)
        loader = loader_class(text)
        try:
            node = loader.get_single_node()
            check_unique_keys(node)
            return loader.construct_document(node) if node else None
        finally:
            loader.dispose()
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # invalid dates are ValueErrors
        raise InputError(f"not YAML ({' '.join(str(error).split())})") from error


@cache
def _yaml_loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    def construct(name: str) -> Any:
        plain = getattr(yaml.SafeLoader, f"construct_yaml_{name}")

        def bounded(loader: Any, node: Any) -> Any:
            value = plain(loader, node) if len(node.value) <= _MAX_DIGITS else 1 << 64
            return check_int(value) if isinstance(value, int) else value

        return bounded

    for name in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{name}", construct(name))
    return Loader


def _check_events(events: Iterable[Any], aliases: bool) -> None:
    import yaml

    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent) and not aliases:  # nested ones can expand beyond any memory
            raise InputError("has a YAML alias (*name); write its value out")
        if getattr(event, "tag", None) not in (None, "!"):
            raise InputError(f"has a YAML tag ({event.tag}); leave it out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise InputError("nested too deeply")


def check_unique_keys(node: Any) -> None:
    """Raise if a mapping of a YAML document has a key twice: YAML would silently keep the last value."""
    import yaml

    parts = list(node.value) if isinstance(node, yaml.CollectionNode) else []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise InputError(f"line {key.start_mark.line + 1} gives {key.value!r} a second time")
            seen.add(key.value)
        parts = [value for _, value in node.value]
    for part in parts:
        check_unique_keys(part)


def check_pickle(file: BinaryIO) -> None:
    """Raise if a file of `torch.save` has tuples that take exponential time to hash; leave the rest to `torch.load`.

    A tuple that holds another one twice, which holds another one twice, and so on, is small as a pickle. As the key of
    a dictionary all its paths are followed.
    """
    try:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            for _ in range(5):  # files of before torch 1.6: five pickles, then the numbers
                _check_tuples(pickletools.genops(file))
            return
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                if re.search(r"(^|/)data\.pkl$", name):
                    _check_tuples(pickletools.genops(archive.read(name)))
    except InputError:
        raise
    except Exception:  # damaged: `torch.load` says so
        return
    finally:
        file.seek(0)


_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")
_HASHED = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "NEWOBJ", "BUILD")


def _check_tuples(operations: Iterable[tuple[Any, Any, Any]]) -> None:
    """Follow the sizes of objects over the stack of a pickle."""
    stack: list[int] = []
    marks: list[int] = []
    memo: dict[int, int] = {}
    for opcode, argument, _ in operations:
        name = opcode.name
        if name == "MARK":
            marks.append(len(stack))
        elif name in _PUTS:
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        elif name == "DUP":
            stack.append(stack[-1])
        else:
            before = opcode.stack_before
            start = len(stack) - len(before)
            if pickletools.markobject in before:
                start = marks.pop() - before.index(pickletools.markobject)
            size = 1 + sum(stack[max(start, 0) :]) * (name in _HASHED)
            if size > _MAX_HASHED:
                raise InputError("tuples that hold each other many times over")
            stack[max(start, 0) :] = [size] * len(opcode.stack_after)
