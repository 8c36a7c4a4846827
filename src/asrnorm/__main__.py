"""`python -m asrnorm`, and so `torchrun -m asrnorm`, and the command `asrnorm`."""

import sys


def run() -> int:
    """Run the command line and return the exit status; Ctrl-C while it is still being loaded is one line too."""
    try:
        from asrnorm.cli.main import main
    except KeyboardInterrupt:
        sys.stderr.write("asrnorm: interrupted\n")
        return 1
    return main()


if __name__ == "__main__":
    sys.exit(run())
