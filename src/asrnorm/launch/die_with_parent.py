"""A command that does not outlive the process that started it, not even where that one is killed by SIGKILL.

Run as a file: `python leash.py PARENT COMMAND...`. On Linux the kernel is asked to kill this process with its parent,
and the process becomes the command. Elsewhere it stays beside the command and looks after it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_SECONDS = 0.5  # between two looks at the parent


def main(parent: int, command: list[str]) -> int:
    """Become the command, or run it, for as long as the parent lives; return its exit status."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
        if os.getppid() == parent:  # else it died before the kernel was asked
            os.execv(command[0], command)
        return 1
    return watch(parent, command)


def watch(parent: int, command: list[str]) -> int:
    """Run the command, pass on SIGTERM and SIGINT, and kill it when the parent has gone."""
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
