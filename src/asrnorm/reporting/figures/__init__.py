"""The paper's figures, one file per kind; a study names the ones it has."""

from asrnorm.reporting.figures import complexity as complexity
from asrnorm.reporting.figures import corruptions as corruptions
from asrnorm.reporting.figures import lambdas as lambdas
from asrnorm.reporting.figures import levels as levels
from asrnorm.reporting.figures import residual as residual
from asrnorm.reporting.figures import samples as samples
from asrnorm.reporting.figures import tsne as tsne
from asrnorm.reporting.figures.base import FIGURES as FIGURES
from asrnorm.reporting.figures.base import NothingToDrawError as NothingToDrawError
