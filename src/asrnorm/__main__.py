"""`python -m asrnorm`, and so `torchrun -m asrnorm`."""

import sys

from asrnorm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
