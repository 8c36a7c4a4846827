"""Numbers as text, and where the numbers of a table come from: seeds, steps, commits and machines."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from asrnorm.core.errors import AsrnormError, count_of
from asrnorm.core.settings import shorten_commit
from asrnorm.studies import Printed
from asrnorm.studies.collect import Collected, Measured, RunRecord
from asrnorm.studies.plan import Task

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"


def format_number(value: float, decimals: int) -> str:
    """Return a number with a fixed count of decimals and a true minus sign."""
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def format_deviation(deviation: float, decimals: int) -> str:
    """Return a deviation with up to three more decimals where it would otherwise round to zero."""
    finer = (count for count in range(decimals, decimals + 4) if float(f"{deviation:.{count}f}") != 0)
    return format_number(deviation, next(finer, decimals))


def format_signed(value: float, decimals: int) -> str:
    """Return a difference with its sign."""
    text = format_number(value, decimals)
    return text if text.startswith(MINUS) or float(text) == 0 else f"+{text}"


def format_measured(measured: Measured, decimals: int) -> str:
    """Return mean and deviation; a single run has no deviation."""
    spread = "" if measured.deviation is None else f" ± {format_deviation(measured.deviation, decimals)}"
    return f"{format_number(measured.mean, decimals)}{spread}"


def format_printed(printed: Printed, decimals: int) -> str:
    """Return a number of the paper as it is printed there."""
    spread = "" if printed.deviation is None else f" ± {format_number(printed.deviation, decimals)}"
    return f"{'< ' if printed.below else ''}{format_number(printed.value, decimals)}{spread}"


def format_p(p: float) -> str:
    """Return a p-value to three decimals."""
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def format_range(values: Sequence[int]) -> str:
    """Return one number, or the least and the greatest.

    Example:
        >>> format_range([5, 5]), format_range([3, 1, 2]), format_range([200_000])
        ('5', '1 to 3', '200,000')
    """
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_seeds(seeds: Iterable[int]) -> str:
    """Return which seeds, each once.

    Example:
        >>> format_seeds([0]), format_seeds([2, 0, 1, 0]), format_seeds([0, 1]), format_seeds([0, 3])
        ('seed 0', 'seeds 0 to 2', 'seeds 0, 1', 'seeds 0, 3')
    """
    found = sorted(set(seeds))
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"seeds {found[0]} to {found[-1]}"
    return f"seed{'s' * (len(found) != 1)} {', '.join(map(str, found))}"


def count_tasks(tasks: Iterable[Task]) -> str:
    """Say how many runs there are among tasks, and how many evaluations and analyses of runs.

    Example:
        >>> from types import SimpleNamespace
        >>> count_tasks([SimpleNamespace(kind=kind) for kind in ("run", "evaluation", "evaluation")])
        '1 run, 2 evaluations'
    """
    counts = Counter[str](task.kind for task in tasks)
    plurals = {"run": "", "evaluation": "", "analysis": "analyses"}
    return ", ".join(count_of(counts[kind], kind, plural) for kind, plural in plurals.items() if counts[kind])


def describe_scale(collected: Collected) -> str:
    """Return the scale of the runs; "" for a folder of runs at full size, which is nobody's scale but their own."""
    return "" if collected.is_folder and collected.scale == "paper" else f"{collected.scale} scale"


def describe_provenance(collected: Collected) -> str:
    """Return how many results the table shows, with seeds, steps, selections, commits and machines; "" for none."""
    records = {record.result.config_hash: record for cell in collected.cells.values() for record in cell.records}
    if not records:
        return ""
    commits = dict.fromkeys(shorten_commit(one) for record in records.values() for one in record.result.commits)
    selections = dict.fromkeys(record.result.selection for record in records.values())
    steps = [count for record in records.values() if (count := _find_steps(record)) is not None]
    facts = [
        f"{count_of(len(records), 'result')}, n = "
        f"{format_range([cell.n for cell in collected.cells.values()])} per cell",
        format_seeds(seed for cell in collected.cells.values() for seed in cell.seeds),
        ": ".join(filter(None, (describe_scale(collected), f"{format_range(steps)} steps" if steps else ""))),
        f"selection {', '.join(selections)}",
        f"commit{'s' * (len(commits) != 1)} {', '.join(commits)}",
        *_describe_origins([record.result.origin for record in records.values()]),
    ]
    return f"{'; '.join(filter(None, facts))}."


def _describe_origins(origins: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Machines and editions of the test images, as far as results record them; older ones do not."""
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


def _find_steps(record: RunRecord) -> int | None:
    """How many steps a run was trained for; its result has the step that was selected."""
    if record.result.selection == "last":
        return record.result.steps
    try:
        return record.spec.config(record.seed, record.result.scale).steps  # type: ignore[arg-type]
    except AsrnormError:  # a run of no study, whose recipe alone does not make its config
        return None
