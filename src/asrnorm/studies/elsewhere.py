"""Results of a study's runs at another scale or seed than the one asked for: never shown, and told of."""

from collections.abc import Iterator, Sequence
from typing import get_args

from asrnorm.core.config import Scale
from asrnorm.studies.plan import iterate_specs
from asrnorm.studies.spec import RunSpec, Study, scored_hash
from asrnorm.studies.store import Found, Store


def look_up(store: Store, spec: RunSpec, seed: int, scale: Scale) -> Found | None:
    """Return the result of a run, where it is there at that scale."""
    found = store.results.get(scored_hash(spec, seed, scale))
    return found if found is not None and found.result.scale == scale else None


def tell_elsewhere(study: Study, store: Store, seeds: Sequence[int], scale: Scale) -> Iterator[str]:
    """Say how many results there are that a table of these seeds at this scale leaves out."""
    for other in get_args(Scale):
        if other != scale and (count := _count_at(study, store, seeds, scale, other)):
            yield f"{_results(count)} missing here exist{'s' * (count == 1)} at scale {other!r}; {_not_shown(count)}"
    if count := _count_further(study, store, seeds, scale):
        yield f"{_results(count)} of further seeds exist{'s' * (count == 1)}; {_not_shown(count)}"


def _count_at(study: Study, store: Store, seeds: Sequence[int], scale: Scale, other: Scale) -> int:
    found = set()
    for spec in iterate_specs(study) if store.results else ():
        for seed in seeds:
            one = look_up(store, spec, seed, other)
            if one is not None and look_up(store, spec, seed, scale) is None:
                found.add(one.result.config_hash)
    return len(found)


def _count_further(study: Study, store: Store, seeds: Sequence[int], scale: Scale) -> int:
    specs = list(iterate_specs(study))
    recipes = {spec.recipe for spec in specs}
    results = [found.result for found in store.results.values()]
    there = {result.seed for result in results if result.scale == scale and result.recipe in recipes}
    further = [look_up(store, spec, seed, scale) for seed in there - set(seeds) for spec in specs]
    return len({one.result.config_hash for one in further if one is not None})


def _results(count: int) -> str:
    return f"{count} result{'s' * (count != 1)}"


def _not_shown(count: int) -> str:
    return "it is not shown" if count == 1 else "they are not shown"
