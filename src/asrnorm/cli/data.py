"""`asrnorm data`: what is there, what is missing, and what can be made of it; one command per file."""

import typer

from asrnorm.cli.data_check import check
from asrnorm.cli.data_corrupt import corrupt
from asrnorm.cli.data_fetch import fetch
from asrnorm.cli.data_list import list_data
from asrnorm.cli.data_show import show

_HELP = """Data sets: list, show, fetch, check and corrupt them.

Example: `asrnorm data list`, then `asrnorm data fetch mnist usps` for what is missing.
"""

data_app = typer.Typer(help=_HELP, no_args_is_help=True)
data_app.command("list")(list_data)
data_app.command("show")(show)
data_app.command("fetch")(fetch)
data_app.command("check")(check)
data_app.command("corrupt")(corrupt)
