"""Script that runs a command which dies with its parent process, even one killed by SIGKILL.

Usage: `python die_with_parent.py PARENT COMMAND...`. On Linux the kernel kills this process with its parent, and the
process becomes the command. Elsewhere it stays alive beside the command and watches the parent.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_SECONDS = 0.5  # between two polls of the parent


def main(parent: int, command: list[str]) -> int:
    """Become the command, or run it, for as long as the parent lives; return its exit status."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
        if os.getppid() == parent:  # otherwise the parent has died already
            os.execv(command[0], command)
        return 1
    return watch(parent, command)


def watch(parent: int, command: list[str]) -> int:
    """Run the command, forward SIGTERM and SIGINT, and kill it once the parent is gone."""
    child = subprocess.Popen(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: child.send_signal(received))  # noqa: ARG005
    while child.poll() is None:
        if os.getppid() != parent:
            child.kill()
        time.sleep(_SECONDS)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
