"""Class names of domains: aliases for those that are called differently, and what a domain lacks or has beyond."""

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown, shorten_list
from asrnorm.core.reading import read_yaml
from asrnorm.data.image_table import Sample, to_nfc

_log = logging.getLogger(__name__)


def rename_classes(
    samples: Sequence[Sample], path: str | Path | None, domains: Collection[str] | None = None
) -> list[Sample]:
    """Return samples with the classes that a YAML file of aliases gives them; without a file, as they are.

    The file has `alias: class` for all domains, and `domain: {alias: class}` for one, which must be in `domains` if
    these are given.
    """
    if path is None:
        return list(samples)
    tables = _read_aliases(Path(path))
    for domain in tables.keys() - {None} - set(domains if domains is not None else tables):
        raise UnknownNameError(f"{path}: {describe_unknown('domain', str(domain), domains or ())}")
    renamed, used = [], set[tuple[str | None, str]]()
    for sample in samples:
        label = to_nfc(sample.label)
        owner = next((name for name in (sample.domain, None) if label in tables.get(name, {})), "")
        if owner != "":
            used.add((owner, label))
            sample = sample._replace(label=tables[owner][label])
        renamed.append(sample)
    given = {(owner, alias) for owner, table in tables.items() for alias in table}
    if unused := sorted(alias for _, alias in given - used):
        _log.warning("%s: no image is in a class called %s", path, shorten_list(unused))
    return renamed


def keep_known(
    samples: Sequence[Sample], classes: Sequence[str], root: Path, *, unknown: str, advice: str
) -> list[Sample]:
    """Return the images of a domain whose classes are known; log which classes it lacks and which others it has.

    With `unknown="refuse"`, or if none of its classes is known, it raises `UnknownNameError` with `advice` instead.
    """
    found = Counter(to_nfc(sample.label) for sample in samples)
    others = {name: count for name, count in found.items() if name not in classes}
    if others and (unknown == "refuse" or len(others) == len(found)):
        problem = describe_unknown(f"class of {samples[0].domain!r},", next(iter(others)), classes)
        skip = "" if len(others) == len(found) else ", or leave its images out: --set suite.unknown=skip"
        raise UnknownNameError(f"{root}: {problem}; {advice}{skip}")
    if others:
        named = shorten_list([f"{name} ({count:,})" for name, count in sorted(others.items())])
        _log.warning(
            "%s: left out %s images of %s in classes that the source does not have: %s; %s",
            *(root, f"{sum(others.values()):,}", samples[0].domain, named, advice),
        )
    if samples and (lacking := [name for name in classes if name not in found]):
        _log.warning(
            "%s: %s has no images of %s; it is scored on the other classes",
            *(root, samples[0].domain, shorten_list(lacking)),
        )
    return [sample for sample in samples if to_nfc(sample.label) not in others]


def _read_aliases(path: Path) -> dict[str | None, dict[str, str]]:
    """Return the aliases of each domain, under `None` those of all."""
    values = read_yaml(path, "file of aliases")
    if not isinstance(values, dict) or not values:
        raise InputError(f"{path}: expected lines `alias: class`, or `domain:` with such lines below it")
    tables: dict[str | None, dict[str, str]] = {}
    for key, value in values.items():
        inside: dict[Any, Any] = value if isinstance(value, dict) else {key: value}
        table = tables.setdefault(str(key) if isinstance(value, dict) else None, {})
        for alias, name in inside.items():
            if not all(type(text) in (str, int) and str(text).strip() for text in (key, alias, name)):
                raise InputError(f"{path}: {alias!r}: {name!r} is no pair of names; put quotes around such names")
            table[to_nfc(str(alias))] = to_nfc(str(name))
    for table in tables.values():
        known = {**tables.get(None, {}), **table}
        for alias, name in table.items():
            if known.get(name, name) != name:
                raise InputError(f"{path}: {alias} is an alias of {name}, which is an alias too; name the class itself")
    return tables
