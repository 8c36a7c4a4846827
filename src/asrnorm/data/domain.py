"""Which domains are trained on and which are held out, from what the user names."""

from collections.abc import Collection, Iterable, Sequence

from asrnorm.errors import UnknownNameError, WrongCallError, describe_unknown

Names = str | Sequence[str] | None


def choose_domains(
    known: Sequence[str], source: Names, target: Names, *, suite: str, needs_target: bool = True
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the source and the target domains.

    One source and no target: all others are targets (single source). One target and no source: all others are sources
    (leave one out). Both: as named. Where there is a single domain and no target is needed, it is the source.

    Args:
        known: the domains there are, in order.
        source: one name, several, or several with commas between.
        target: likewise.
        suite: the suite's name, for messages.
        needs_target: refuse a choice that leaves no target.

    Raises:
        UnknownNameError: a domain that is not known.
        WrongCallError: nothing is chosen, nothing is left, or a domain is on both sides.

    Example:
        >>> choose_domains(["art", "photo", "sketch"], None, "photo", suite="pacs")
        (('art', 'sketch'), ('photo',))
    """
    sources, targets = split_names(source, known), split_names(target, known)
    check_domains(known, (*sources, *targets), suite=suite)
    if len(known) == 1 and not targets and not needs_target:
        return tuple(known), ()
    if not sources and not targets:
        raise WrongCallError(
            f"suite {suite!r}: choose what to train on among {', '.join(known)}: --source NAME (in Python source=)"
        )
    if both := sorted(set(sources) & set(targets)):
        raise WrongCallError(f"suite {suite!r}: {', '.join(both)} cannot be source and target at once")
    chosen_sources = sources or tuple(name for name in known if name not in targets)
    chosen_targets = targets or tuple(name for name in known if name not in sources)
    if not chosen_sources or (needs_target and not chosen_targets):
        side = "source" if not chosen_sources else "target"
        raise WrongCallError(f"suite {suite!r}: no {side} domain is left of {', '.join(known)}")
    return chosen_sources, chosen_targets


def check_domains(known: Iterable[str], names: Iterable[str], *, suite: str) -> None:
    """Refuse names of domains that are not known.

    Raises:
        UnknownNameError: with the nearest known name and all of them.

    Example:
        >>> check_domains(["dawn", "dusk"], ["dsk"], suite="folder")
        Traceback (most recent call last):
        asrnorm.errors.UnknownNameError: unknown domain of suite 'folder', 'dsk'; did you mean 'dusk'? Known: dawn, dusk
    """
    there = tuple(known)
    for name in names:
        if name not in there:
            raise UnknownNameError(describe_unknown(f"domain of suite {suite!r},", name, there))


def split_names(names: Names, known: Collection[str] = ()) -> tuple[str, ...]:
    """Return names as a tuple without repetitions, from one string with commas or from a sequence.

    Args:
        names: what the user wrote.
        known: the domains there are; one whose own name has a comma, or a space at an end, is taken whole.

    Example:
        >>> split_names("photo, art,photo"), split_names(None), split_names("Bern, day", ["Bern, day", "dusk"])
        (('photo', 'art'), (), ('Bern, day',))
    """
    if names is None:
        return ()
    words = ((names,) if names in known else names.split(",")) if isinstance(names, str) else names
    return tuple(dict.fromkeys(word if word in known else word.strip() for word in words if word.strip()))
