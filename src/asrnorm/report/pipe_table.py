"""Tables as Markdown writes them, line by line."""

from collections.abc import Sequence

# In this order: what others are written with comes first.
_SIGNS = {
    "\\": "\\\\",
    "&": "&amp;",
    "<": "&lt;",
    "|": "\\|",
    "*": "\\*",
    "`": "\\`",
}


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


def escape(text: str) -> str:
    r"""Return text without what would end a cell or its line, set it in italics, or be taken for HTML.

    Example:
        >>> escape("a|b*")
        'a\\|b\\*'
    """
    for sign, written in _SIGNS.items():
        text = text.replace(sign, written)
    return " ".join(text.split())
