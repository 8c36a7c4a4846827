"""One run, from config to result, that survives anything."""

from asrnorm.training.run import LoadedRun as LoadedRun
from asrnorm.training.run import load_run as load_run
from asrnorm.training.run import run as run
