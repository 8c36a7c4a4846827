"""The log of a run as curves: what it says of a number over the steps."""

from collections.abc import Iterator
from typing import Any

Points = list[tuple[float, float]]


def curve(rows: list[dict[str, Any]], key: str) -> Points:
    """Return step and value of every row that has the number.

    Example:
        >>> curve([{"step": 1, "loss": 2.0}, {"step": 2, "lr": 0.1}], "loss")
        [(1, 2.0)]
    """
    return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]


def lambda_curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, Points]]:
    """Return the lambdas by name and layer, layers in the order of the network.

    Example:
        >>> lambda_curves([{"step": 5, "lambdas": {"norm1": {"lambda_mu": 0.05}}}])
        {'lambda_mu': {'norm1': [(5, 0.05)]}}
    """
    found: dict[str, dict[str, Points]] = {}
    for row in rows:
        for layer, name, value in _lambdas(row):
            found.setdefault(name, {}).setdefault(layer, []).append((row["step"], value))
    return found


def _lambdas(row: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    for layer, values in row.get("lambdas", {}).items():
        for name, value in values.items():
            yield layer, name, value


def thin(points: Points, most: int = 160) -> Points:
    """Return so many points at most, spread evenly, the first and the last among them.

    Example:
        >>> thin([(i, 0.0) for i in range(5)], 3)
        [(0, 0.0), (2, 0.0), (4, 0.0)]
    """
    if len(points) <= most:
        return points
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
