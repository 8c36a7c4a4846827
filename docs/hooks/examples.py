"""An extension of griffe, which reads the docstrings of the API page: it takes our "Example:" for its "Examples:"."""

from typing import Any

from griffe import Extension, Object


class ExampleSections(Extension):
    """Rename the section, so that a doctest is shown as code and not as a quotation."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
