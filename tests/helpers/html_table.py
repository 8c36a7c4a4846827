"""Tables of an HTML page as their text, for tests that do not depend on its markup."""

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class HtmlCell:
    """A cell: its text, its attributes, and the links and titles in it."""

    attributes: dict[str, str]
    text: str = ""
    links: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)


@dataclass
class HtmlTable:
    """A table: class, heads, and lines of cells."""

    kind: str
    lines: list[list[HtmlCell]] = field(default_factory=list)

    @property
    def heads(self) -> list[str]:
        return [cell.text for cell in self.lines[0]]

    def line(self, *names: str) -> dict[str, HtmlCell]:
        """Return the first line that begins with these texts, by head."""
        found = next(line for line in self.lines if [cell.text for cell in line[: len(names)]] == list(names))
        return dict(zip(self.heads, found, strict=True))


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tables: list[HtmlTable] = []
        self.cell: HtmlCell | None = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "table":
            self.tables.append(HtmlTable(attributes.get("class", "")))
        elif tag == "tr":
            self.tables[-1].lines.append([])
        elif tag in ("td", "th"):
            self.cell = HtmlCell(attributes)
            self.tables[-1].lines[-1].append(self.cell)
        elif self.cell is not None:
            self.cell.text += "\n" if tag in ("br", "span", "sup") else ""
            self.cell.links += [attributes["href"]] if tag == "a" else []
            self.cell.titles += [attributes["title"]] if "title" in attributes else []

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell.text = " ".join(self.cell.text.split())
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.text += data


def read_tables(text: str, kind: str = "") -> list[HtmlTable]:
    """Return the tables of a page whose class has this word."""
    reader = _Reader()
    reader.feed(text)
    return [table for table in reader.tables if not kind or kind in table.kind.split()]
