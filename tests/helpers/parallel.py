"""The same work in several forked processes, which inherit what has been imported."""

import json
import os
import tempfile
import traceback
from pathlib import Path


def fork(function):
    """Call a function in a forked process; return the process' id. Its status is 1 after an exception."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        function()
        status = 0
    except BaseException:  # nothing may leave the copy of the parent's stack
        traceback.print_exc()
    finally:
        os._exit(status)


def in_processes(function, processes):
    """Call `function(worker)` in that many processes; return what each returns, through JSON, by worker."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(worker)) for worker in range(processes)]

        def save(worker):
            files[worker].write_text(json.dumps(function(worker)))

        children = [fork(lambda worker=worker: save(worker)) for worker in range(processes)]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            raise SystemExit(f"processes ended with {statuses}")
        return [json.loads(file.read_text()) for file in files]


def write_report(report, file):
    """Print a report as JSON, and write it to a file if there is one."""
    text = json.dumps(report, indent=1) + "\n"
    print(text, end="")  # noqa: T201
    if file is not None:
        file.write_text(text)
