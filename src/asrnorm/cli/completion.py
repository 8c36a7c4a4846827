"""What the Tab key offers for names of recipes and studies and for settings; none of it loads torch."""

import dataclasses

from asrnorm.core.config import RunConfig


def complete_recipe(incomplete: str) -> list[str]:
    """Return the recipes that begin with this text."""
    from asrnorm.recipes import list_recipes

    return [name for name in list_recipes() if name.startswith(incomplete)]


def complete_study(incomplete: str) -> list[str]:
    """Return the studies that begin with this text."""
    from asrnorm.studies import list_studies

    return [name for name in list_studies() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Return the fields of a config that begin with this text, as `--set` takes them, and the norms after `norm=`."""
    from asrnorm.recipes.base import NORMS

    words = [f"{field.name}=" for field in dataclasses.fields(RunConfig)] + [f"norm={name}" for name in NORMS]
    return [word for word in words if word.startswith(incomplete) and (word[-1] == "=" or "=" in incomplete)]
