"""`asrnorm data`: what is there, what is missing, and what can be made of it; one command a file."""

import typer

from asrnorm.cli.data_check import check
from asrnorm.cli.data_corrupt import corrupt
from asrnorm.cli.data_fetch import fetch
from asrnorm.cli.data_list import list_data
from asrnorm.cli.data_show import show

data_app = typer.Typer(help="Data sets: list, show, fetch, check and corrupt them.", no_args_is_help=True)
data_app.command("list")(list_data)
data_app.command("show")(show)
data_app.command("fetch")(fetch)
data_app.command("check")(check)
data_app.command("corrupt")(corrupt)
