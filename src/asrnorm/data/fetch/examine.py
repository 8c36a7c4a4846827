"""Whether a file that is there is what it should be: by checksum first, by content where copies may differ."""

from pathlib import Path

from asrnorm.core.errors import InputError, MissingDependencyError
from asrnorm.data.fetch.checksum import algorithm_of, compute
from asrnorm.data.fetch.entry import File

PRESENT, MISSING, DAMAGED = "present", "missing", "damaged"
PUBLISHED = "the published file"


def examine(path: Path, file: File) -> tuple[str, str]:
    """Return state and detail of an existing file or folder."""
    if not file.digest:
        problem = ""
    elif not path.is_file():
        problem = "not a file"
    elif file.size is not None and path.stat().st_size != file.size:
        problem = f"{path.stat().st_size} bytes, the published file has {file.size}"
    else:
        name = algorithm_of(file.digest)
        if compute(path, [name])[name] == file.digest:
            return PRESENT, _look(path, file)
        problem = f"{name.upper()} differs from the published one"
    if file.content is None:
        return DAMAGED, problem
    try:
        return PRESENT, file.content(path)
    except MissingDependencyError as error:
        return PRESENT, f"{problem}; not looked into: {error}"
    except InputError as error:
        return DAMAGED, f"{problem}; {error}" if problem else str(error)


def _look(path: Path, file: File) -> str:
    if file.look is None:
        return PUBLISHED
    try:
        return f"{PUBLISHED}; {file.look(path)}"
    except (InputError, ImportError) as error:  # the bytes are right, so this is about the library that reads them
        return f"{PUBLISHED}; not looked into: {error}"
