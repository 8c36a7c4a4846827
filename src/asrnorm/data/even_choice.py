"""A few rows of many: as many of each class, spread evenly."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def choose_evenly(labels: ArrayLike, limit: int) -> NDArray[np.int64]:
    """Return `limit` rows, or all where there are no more, in order: as many of each class, evenly spaced within it.

    Example:
        >>> choose_evenly([0, 0, 0, 0, 1, 1], 4).tolist(), choose_evenly([0, 1, 2, 3], 2).tolist()
        ([0, 2, 4, 5], [0, 2])
    """
    labels_n = np.asarray(labels)
    if limit >= len(labels_n):
        return np.arange(len(labels_n))
    rows = [np.flatnonzero(labels_n == label) for label in np.unique(labels_n)]
    # Where there are more classes than images, classes are spaced out too.
    if limit < len(rows):
        return np.sort(np.array([rows[step * len(rows) // limit][0] for step in range(limit)], np.int64))
    quotas = np.zeros(len(rows), np.int64)
    sizes = np.array([len(own) for own in rows])
    while (left := limit - int(quotas.sum())) > 0:
        open_to_more = np.flatnonzero(quotas < sizes)
        quotas[open_to_more[:left]] += max(1, min(left // len(open_to_more), int((sizes - quotas)[open_to_more].min())))
    chosen = [own[np.arange(quota) * len(own) // quota] for own, quota in zip(rows, quotas, strict=True)]
    return np.sort(np.concatenate(chosen))
