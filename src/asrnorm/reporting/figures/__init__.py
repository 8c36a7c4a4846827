"""The paper's figures, by the names that studies give them."""

from asrnorm.reporting.figures import complexity as complexity
from asrnorm.reporting.figures import corruptions as corruptions
from asrnorm.reporting.figures import curves as curves
from asrnorm.reporting.figures import domains as domains
from asrnorm.reporting.figures.base import FIGURES as FIGURES
from asrnorm.reporting.figures.base import NothingToDrawError as NothingToDrawError
