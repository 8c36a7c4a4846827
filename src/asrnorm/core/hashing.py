"""Compare and hash configs over the fields that change numbers."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Fields that do not change the numbers of a run.
UNHASHED = ("device", "compile", "capture", "checkpoint_every", "log_every", "lambda_every")
# Suite options that do not change the numbers of a run.
UNHASHED_OPTIONS = ("max_gigabytes",)
# Suites of published images, equal wherever they are stored. Other suites are identified by their root.
PUBLISHED = ("cifar10c", "digits", "digits_mini", "pacs")
# Fields added after the first kept results, each with the value that reproduces the behaviour before it existed. At
# that value the field is left out of the hash, so adding a field changes no hash. The value is repeated here rather
# than read from the dataclass, so that changing a default cannot give a new run the hash of an old one.
ADDED: dict[str, Any] = {
    "calibrate": 0,
    "reestimate": 0,
    "confine": 0,
    "selection_ties": "first",
    "fold": "none",
    "average": {"name": "none", "args": {}},
    "blocks": "none",
    "adapt": "none",
    "optim.warmup_steps": 0,
    "optim.norm_warmup_steps": 0,
    "optim.norm_lr": 1,
    "optim.lambda_lr": 1,
    "optim.decay_networks": True,
    "optim.head_lr": 1,
    "optim.step_again": 1,
}

_ABSENT = object()


def digest(values: Mapping[str, Any]) -> str:
    """Return ten hex digits over the fields of a plain config that change numbers."""
    kept = decisive(values)
    for path, before in ADDED.items():
        *parents, name = path.split(".")
        owner = kept
        for parent in parents:
            owner = owner.get(parent, {})
        if _is_same(owner.get(name, _ABSENT), before):
            del owner[name]
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """Return the dotted name and both values of the first decisive field that differs, or `None`."""
    return _compare(decisive(mine), decisive(theirs), "")


def decisive(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that change numbers in canonical form: 1.0 equals 1, a tuple equals a list."""
    plain: dict[str, Any] = _plain(values)
    for name in UNHASHED:
        plain.pop(name, None)
    for name in UNHASHED_OPTIONS:
        plain["suite"]["args"].pop(name, None)
    if plain["suite"]["name"] in PUBLISHED:
        plain["suite"]["args"].pop("root", None)
    weights = values.get("weights")
    plain["weights"] = _name_weights(Path(weights)) if weights else None
    return plain


def _name_weights(path: Path) -> str:
    """Return the file name for weights in the data folder's `weights`, and the given path for any other file."""
    if path.parent.as_posix() == "weights":
        return path.name
    normal = os.path.normpath(path.expanduser())
    return normal if os.sep in normal else f"./{normal}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value) if isinstance(value, Path) else value


def _compare(mine: Any, theirs: Any, path: str) -> str | None:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        for key in {**mine, **theirs}:
            where = f"{path}.{key}" if path else key
            found = _compare(mine.get(key, _ABSENT), theirs.get(key, _ABSENT), where)
            if found:
                return found
        return None
    return None if _is_same(mine, theirs) else f"{path}: {_show(mine)} here, {_show(theirs)} there"


def _is_same(mine: Any, theirs: Any) -> bool:
    return type(mine) is type(theirs) and bool(mine == theirs)


def _show(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(value)
