"""Text as servers put it together from halves of characters."""

from __future__ import annotations


def whole(text: str) -> str:
    """A text that can be written: halves of a character joined that came in two chunks, and those that stayed alone replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
