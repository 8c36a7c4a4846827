"""A first process under an MPS daemon: does CUDA work there, and does it go through the daemon?

Run as a file: `python probe.py CONTROL`; it ends with status 0, or with one line on standard error and status 1.
"""

import subprocess
import sys

LEAST_CAPABILITY = (7, 0)
"""Before Volta, clients share an address space and can write into each other's memory."""


def main(control: str) -> str | None:
    """Use every GPU there is; return what is wrong, `None` where nothing is."""
    import torch

    if not torch.cuda.is_available():
        return "no CUDA device under MPS"
    for index in range(torch.cuda.device_count()):
        if torch.cuda.get_device_capability(index) < LEAST_CAPABILITY:
            return f"GPU {index} is older than Volta"
        if torch.ones(1, device=f"cuda:{index}").item() != 1:
            return f"GPU {index} computes nonsense under MPS"
    # CUDA goes on without a daemon that it cannot reach; a server runs for this process only if it did.
    asked = subprocess.run([control], input="get_server_list\n", capture_output=True, text=True, check=False)
    if not any(word.isdigit() for word in asked.stdout.split()):
        return "the MPS daemon started no server"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
