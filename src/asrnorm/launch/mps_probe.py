"""Script that checks that CUDA works under an MPS daemon, and uses it.

Usage: `python mps_probe.py CONTROL`; it ends with status 0, or with one line on standard error and status 1.
"""

import subprocess
import sys

LEAST_CAPABILITY = (7, 0)  # before Volta, clients share an address space and can write into each other's memory


def main(control: str) -> str | None:
    """Use every GPU; return what is wrong, or `None`."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device under MPS"
    for index in range(torch.cuda.device_count()):
        if torch.cuda.get_device_capability(index) < LEAST_CAPABILITY:
            return f"GPU {index} is older than Volta"
        if torch.ones(1, device=f"cuda:{index}").item() != 1:
            return f"GPU {index} gives wrong results under MPS"
    # CUDA works without a daemon that it cannot reach; a server runs only if this process uses the daemon.
    asked = subprocess.run([control], input="get_server_list\n", capture_output=True, text=True, check=False)
    if not any(word.isdigit() for word in asked.stdout.split()):
        return "the MPS daemon started no server"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
