"""The paper's figures, one file per kind; a study names the ones it has."""

from asrnorm.report.figures import complexity as complexity
from asrnorm.report.figures import corruptions as corruptions
from asrnorm.report.figures import lambdas as lambdas
from asrnorm.report.figures import levels as levels
from asrnorm.report.figures import residual as residual
from asrnorm.report.figures import samples as samples
from asrnorm.report.figures import tsne as tsne
from asrnorm.report.figures.base import FIGURES as FIGURES
from asrnorm.report.figures.base import NothingToDrawError as NothingToDrawError
