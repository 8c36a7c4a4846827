"""`python -m helpers.toy_asrnorm`: the command line with the toys of `tiny_run` registered, for launches of them."""

import sys

import torch

from asrnorm.cli.main import main
from helpers import tiny_run

if __name__ == "__main__":
    torch.set_num_threads(1)
    tiny_run.install()
    sys.exit(main())
