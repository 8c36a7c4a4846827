"""What the rows of a folder report are called: by recipe, and by the settings in which runs of one recipe differ."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from asrnorm.core.config import RunConfig, to_mapping
from asrnorm.core.hashing import decisive

_MOST_FIELDS = 3  # a label with more is harder to read than a hash
_ABSENT = object()

Fields = dict[str, Any]


def label_rows(configs: Mapping[str, RunConfig]) -> dict[str, str]:
    """Return a label for each config, by its hash: recipe and source, scale where it varies, what tells rows apart.

    Runs whose epochs are chosen on the targets are always called oracle.

    Rows of one recipe and source name the fields that differ among them, as `--set` writes them; where those are many,
    the fields that most of them have otherwise; and where those are many too, their hash.
    """
    mixed = len({config.scale for config in configs.values()}) > 1
    texts = {key: _describe(config, with_scale=mixed) for key, config in configs.items()}
    clashes: dict[str, list[str]] = {}
    for key, text in texts.items():
        clashes.setdefault(text, []).append(key)
    labels = dict(texts)
    for text, keys in clashes.items():
        if len(keys) > 1:
            rows = [_flatten(configs[key]) for key in keys]
            settings = _tell_apart(rows)
            if any(len(words) > _MOST_FIELDS for words in settings):
                settings = _tell_apart(rows, from_most=True)
            for key, words in zip(keys, settings, strict=True):
                named = len(words) <= _MOST_FIELDS and settings.count(words) == 1
                labels[key] = ", ".join([text, *words]) if named else f"{text} [{key}]"
    return labels


def _describe(config: RunConfig, *, with_scale: bool) -> str:
    source = config.suite.args.get("source")
    names = source if isinstance(source, str) else ", ".join(source or ())
    words = [config.recipe, f"from {names}" if names else "", f"({config.scale})" if with_scale else ""]
    words += ["(oracle)"] if config.selection == "oracle" else []  # never to be taken for an honest row
    return " ".join(word for word in words if word)


def _flatten(config: RunConfig) -> Fields:
    """Return what changes numbers by the names that `--set` takes: `method`, `method.interval`, `optim.lr`."""
    fields: Fields = {}
    for name, value in decisive(to_mapping(replace(config, seed=0))).items():
        if not isinstance(value, dict):
            fields[name] = value
        elif set(value) == {"name", "args"}:
            fields[name] = value["name"]
            fields |= {f"{name}.{option}": part for option, part in value["args"].items()}
        else:
            fields |= {f"{name}.{part}": one for part, one in value.items()}
    return fields


def _tell_apart(rows: Sequence[Fields], *, from_most: bool = False) -> list[list[str]]:
    """Return for each row the settings in which it differs from another; options of a choice among equal choices.

    Args:
        rows: what was set.
        from_most: leave out a value that more rows have than any other.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    told = []
    for row in rows:
        words = []
        for name in names:
            choice = name.partition(".")[0]
            peers = [other for other in rows if other.get(choice) == row.get(choice)] if choice != name else rows
            value = _write(row.get(name, _ABSENT))
            (commonest, most), *others = Counter(_write(other.get(name, _ABSENT)) for other in peers).most_common(2)
            is_usual = from_most and value == commonest and others and others[0][1] < most
            if others and not is_usual:
                words.append(f"{name}={value}")
        told.append(words)
    return told


def _write(value: Any) -> str:
    if value is _ABSENT:
        return "default"
    return value if isinstance(value, str) else json.dumps(value)
