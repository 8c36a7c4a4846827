"""Empirical risk minimization: cross-entropy on the source, and nothing else."""

from asrnorm.methods.base import METHODS, Method


@METHODS.register("erm")
class ERM(Method):
    """ERM: the mean cross-entropy of the source images.

    Example:
        >>> ERM().is_growing(1000)
        False
    """

    def __init__(self) -> None:
        super().__init__()
