"""`asrnorm data show`: contact sheets of a suite, one PNG a domain and an overview."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from asrnorm.cli.options import check_folder
from asrnorm.core.errors import InputError, UnknownNameError, describe_unknown


def show(
    suite: Annotated[str, typer.Argument(help="Name of the suite; see `asrnorm list suites`.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder to write to.", show_default="runs/samples/SUITE")] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(help="Only this domain; may be given again. By default all, and of several levels the strongest."),
    ] = None,
    per_class: Annotated[int, typer.Option(min=1, help="Number of images per class on the sheet of a domain.")] = 8,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the data, for `folder` your images; by default ASRNORM_DATA.", show_default=False),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source domain, if the suite has a choice.", show_default=False)
    ] = None,
) -> None:
    """Write a contact sheet per domain, and an overview of all of them.

    Example: `asrnorm data show digits_mini --out samples`. Your own images: `asrnorm data show folder --root photos
    --source day`
    """
    folder = out or Path("runs", "samples", suite)
    check_folder(folder, "--out")
    from asrnorm import data
    from asrnorm.data.contact_sheet import contact_sheet

    options = {name: value for name, value in (("root", root), ("source", source)) if value is not None}
    loaded: Any = data.create_suite(suite, **options)
    if hasattr(loaded, "load"):
        loaded = loaded.load()
    domains = SuiteDomains(loaded, domain)
    files = contact_sheet(domains, loaded.classes, folder, per_class=per_class)
    typer.echo(f"{folder}: {', '.join(file.name for file in files)}")
    absent = [part for part in getattr(loaded, "missing", ()) if part.role == "target"]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        typer.echo(f"not shown: {absent[0].name}{more}: {absent[0].detail}", err=True)


class SuiteDomains(Mapping[str, tuple[Any, Any]]):
    """The source and the targets of a suite as a contact sheet takes them; each is decoded when its turn comes.

    Args:
        suite: has `train`, perhaps `source_test`, and `targets`; each data set has `labels` and either `images` or
            `read(row)`.
        chosen: names to keep; `None` is all, but of domains that come in levels (`fog/1` to `fog/5`) the strongest.

    Raises:
        UnknownNameError: a chosen domain is not in the suite.
    """

    def __init__(self, suite: Any, chosen: Sequence[str] | None = None) -> None:
        self._suite = suite
        self._source = "+".join(getattr(suite, "sources", ())) or "source"
        targets = tuple(suite.targets)
        known = (self._source, *(name for name in targets if name != self._source))
        for name in chosen or ():
            if name not in known:
                raise UnknownNameError(describe_unknown("domain", name, known))
        self._names = tuple(dict.fromkeys(chosen)) if chosen else strongest_levels(known)

    def __getitem__(self, name: str) -> tuple[Any, Any]:
        data = self._load_source() if name == self._source else self._suite.targets[name]
        return (data.images if hasattr(data, "images") else _Rows(data)), data.labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def _load_source(self) -> Any:
        # Rather the test images: those of CIFAR-10-C are the same pictures, so its columns show one picture each.
        test = getattr(self._suite, "source_test", None)
        return self._suite.train if test is None else test

    def __len__(self) -> int:
        return len(self._names)


def strongest_levels(names: Sequence[str]) -> tuple[str, ...]:
    """Of names such as `fog/1` to `fog/5` keep the last; keep all others.

    Example:
        >>> strongest_levels(["cifar10", "fog/1", "fog/5", "fog/10", "snow/2"])
        ('cifar10', 'fog/10', 'snow/2')
    """
    strongest: dict[str, tuple[int, str]] = {}
    for name in names:
        stem, _, level = name.rpartition("/")
        key, rank = (stem, int(level)) if stem and level.isdecimal() else (name, 0)
        strongest[key] = max(strongest.get(key, (rank, name)), (rank, name))
    return tuple(name for _, name in strongest.values())


class _Rows:
    """Images that stay in their files, indexed as an array of them would be."""

    def __init__(self, data: Any) -> None:
        if not hasattr(data, "read"):
            raise InputError(f"{type(data).__name__} has neither images nor read(row); nothing can be shown of it")
        self._data = data

    def __getitem__(self, row: int) -> Any:
        return self._data.read(row)
