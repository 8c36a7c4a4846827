"""Tables that sort on a click or a key: a small script, and the style that goes with it.

A table of class `sortable` has a head of one row; a cell sorts by its `data-sort`, else by its text, and one whose
`data-sort` is empty stays last. The third press brings the first order back. Without the script it is a plain table.
"""

SCRIPT = "sorting.js"

STYLE = """
th button { all: unset; cursor: pointer; font: inherit; white-space: nowrap; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; }
th button::after { content: "\\2195"; display: inline-block; width: 1em; text-align: center; color: var(--faint);
  font-weight: 400; }
th[aria-sort=ascending] button::after { content: "\\2191"; color: var(--ink); }
th[aria-sort=descending] button::after { content: "\\2193"; color: var(--ink); }
"""
