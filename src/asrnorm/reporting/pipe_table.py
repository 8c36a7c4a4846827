"""Tables as Markdown writes them, line by line."""

import re
from collections.abc import Sequence

from asrnorm.core.errors import printable

_MOST_COLUMNS = 9  # that fit the width of a page, with the numbers of a study in them
# In this order: what others are written with comes first.
_SIGNS = {
    "\\": "\\\\",
    "&": "&amp;",
    "|": "\\|",
    "*": "\\*",
    "`": "\\`",
}
_TAG = re.compile("<(?=[A-Za-z/!?]|$)")  # what begins HTML, or a link such as <javascript:...>
_LINK = re.compile(r"\](?=[(\[])")


def pipe_line(cells: Sequence[str]) -> str:
    """Return a line of a table.

    Example:
        >>> pipe_line(["a", "1"])
        '| a | 1 |'
    """
    return "| " + " | ".join(cells) + " |"


def pipe_head(names: Sequence[str], *, words: int) -> str:
    """Return the head of a table, with the rule under it.

    Args:
        names: of the columns.
        words: how many columns, from the left, are of words; those of numbers are set to the right.

    Example:
        >>> print(pipe_head(["row", "n"], words=1))
        | row | n |
        | --- | ---: |
    """
    rule = ["---" if place < words else "---:" for place in range(len(names))]
    return f"{pipe_line(names)}\n{pipe_line(rule)}"


def pipe_table(grid: Sequence[Sequence[str]], *, words: int) -> str:
    """Return a table, its first line the head; one too wide for a page and not as long is turned on its side.

    Args:
        grid: the cells, escaped, line by line.
        words: how many columns, from the left, are of words.

    Example:
        >>> print(pipe_table([["", "a", "b"], ["x", "1", "2"]], words=1))
        |  | a | b |
        | --- | ---: | ---: |
        | x | 1 | 2 |
        >>> print(pipe_table([["", *"abcdefghi"], ["x", *"123456789"]], words=1).split("| c")[0])
        |  | x |
        | --- | ---: |
        | a | 1 |
        | b | 2 |
        <BLANKLINE>
    """
    if len(grid[0]) > _MOST_COLUMNS and len(grid) < len(grid[0]):
        grid, words = list(zip(*grid, strict=True)), 1
    return "\n".join([pipe_head(grid[0], words=words), *map(pipe_line, grid[1:])])


def escape(text: str) -> str:
    r"""Return text without what would end a cell or its line, set it in italics, or be taken for a link or HTML.

    Example:
        >>> escape("a|b*")
        'a\\|b\\*'
    """
    for sign, written in _SIGNS.items():
        text = text.replace(sign, written)
    text = _LINK.sub("&#93;", _TAG.sub("&lt;", text))
    return printable(" ".join(text.split()))
