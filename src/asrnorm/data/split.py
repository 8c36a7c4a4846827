"""Splits that keep the balance of classes and stay put when a folder grows."""

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from asrnorm.errors import InputError


def split_stratified(
    keys: Sequence[str], strata: Sequence[Hashable], fractions: Sequence[float], *, seed: int
) -> list[NDArray[np.int64]]:
    """Return the rows of the held-out parts, then those of the rest, each in ascending order.

    Within a stratum (a class, or a class of a domain) the images are ranked by a hash of the seed and their key, and
    the parts are cut off the front. No random stream is involved: the split is the same on every machine and version,
    and a file that is added moves few others.

    Args:
        keys: one a sample, distinct, such as its path relative to the root.
        strata: what to keep in balance.
        fractions: the share of each held-out part. A part with a share above zero gets at least one image of a
            stratum that has enough of them, and the rest always keeps one.
        seed: another seed gives another split.

    Raises:
        InputError: fractions that are negative or leave nothing.

    Example:
        >>> held, rest = split_stratified(list("abcdefgh"), [0, 1] * 4, [0.25], seed=0)
        >>> len(held), len(rest), sorted(row % 2 for row in held.tolist())
        (2, 6, [0, 1])
    """
    if any(not 0 <= fraction < 1 for fraction in fractions) or sum(fractions) >= 1:
        raise InputError(f"held-out fractions {list(fractions)}: each must be at least 0, and their sum below 1")
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for row, stratum in enumerate(strata):
        groups[stratum].append(row)
    parts: list[list[int]] = [[] for _ in range(len(fractions) + 1)]
    for rows in groups.values():
        ranked = sorted(rows, key=lambda row: (_rank(seed, keys[row]), keys[row]))
        for part, fraction in enumerate(fractions):
            size = min(max(round(fraction * len(rows)), 1), len(ranked) - 1) if fraction else 0
            parts[part] += ranked[:size]
            ranked = ranked[size:]
        parts[-1] += ranked
    return [np.array(sorted(part), np.int64) for part in parts]


def _rank(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode("utf-8", "surrogatepass")).digest()
