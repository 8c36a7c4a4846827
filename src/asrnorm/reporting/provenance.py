"""Where the numbers of a table come from: how many results, of which seeds, steps, commits and machines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from asrnorm.core.commit import shorten_commit
from asrnorm.core.errors import AsrnormError
from asrnorm.reporting.entry import show_range
from asrnorm.studies.collect import Collected, RunRecord


def provenance(collected: Collected) -> str:
    """Return how many results stand behind the table: seeds, steps, selections, commits, machines; empty where none do.

    Commits are shown by their first twelve digits, and with `+` where files differed from them.
    """
    records = _records(collected)
    if not records:
        return ""
    commits = dict.fromkeys(shorten_commit(one) for record in records.values() for one in record.result.commits)
    selections = dict.fromkeys(record.result.selection for record in records.values())
    facts = [
        f"{len(records)} result{'s' * (len(records) != 1)}, n = "
        f"{show_range([cell.n for cell in collected.cells.values()])} per cell",
        show_seeds(seed for cell in collected.cells.values() for seed in cell.seeds),
        f"{collected.scale} scale{_show_steps(records.values())}",
        f"selection {', '.join(selections)}",
        f"commit{'s' * (len(commits) != 1)} {', '.join(commits)}",
        *_show_origins([record.result.origin for record in records.values()]),
    ]
    return f"{'; '.join(facts)}."


def _show_origins(origins: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """On what they were made and scored, as far as that is known: older results do not say."""
    known = [origin for origin in origins if origin.get("device") and origin.get("torch")]
    if known:
        machines = dict.fromkeys(f"{origin['device']}, torch {origin['torch']}" for origin in known)
        days = sorted({origin["day"] for origin in known if "day" in origin})
        when = f", {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        yield f"{'' if len(known) == len(origins) else 'some '}on {' and '.join(machines)}{when}"
    if scored := [origin["scored"] for origin in origins if origin.get("scored")]:
        yield f"{len(scored)} scored again by {', '.join(dict.fromkeys(scored))}"
    editions = [origin["edition"] for origin in origins if origin.get("edition")]
    some = "some on " if editions and len(editions) < len(origins) else ""
    yield from (f"{some}{edition}" for edition in dict.fromkeys(editions))


def _show_steps(records: Iterable[RunRecord]) -> str:
    steps = [count for record in records if (count := _find_steps(record)) is not None]
    return f": {show_range(steps)} steps" if steps else ""


def _find_steps(record: RunRecord) -> int | None:
    """How long it was trained; a result has the step that was chosen."""
    if record.result.selection == "last":
        return record.result.steps
    try:
        return record.spec.config(record.seed, record.scale).steps  # type: ignore[arg-type]
    except AsrnormError:  # a run of no study, whose recipe alone does not make its config
        return None


def show_seeds(seeds: Iterable[int]) -> str:
    """Return which seeds, each once.

    Example:
        >>> show_seeds([0]), show_seeds([2, 0, 1, 0]), show_seeds([0, 1]), show_seeds([0, 3])
        ('seed 0', 'seeds 0 to 2', 'seeds 0, 1', 'seeds 0, 3')
    """
    found = sorted(set(seeds))
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"seeds {found[0]} to {found[-1]}"
    return f"seed{'s' * (len(found) != 1)} {', '.join(map(str, found))}"


def _records(collected: Collected) -> dict[str, RunRecord]:
    return {record.config_hash: record for cell in collected.cells.values() for record in cell.records}
