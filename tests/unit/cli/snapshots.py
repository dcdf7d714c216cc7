"""What verbs print, kept as text files beside the tests: `UPDATE_SNAPSHOTS=1 pytest ...` writes them anew, and then one looks at them."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"
ESCAPE = "\N{SYMBOL FOR ESCAPE}"


def check(name: str, shown: str) -> None:
    """Fails where what is shown is not what the file has. Escapes are written as a sign that can be seen."""
    text = shown.replace("\x1b", ESCAPE)
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert path.is_file(), f"{path} is missing; UPDATE_SNAPSHOTS=1 writes it"
    assert text == path.read_text(), f"{path} differs; if this is what you want: UPDATE_SNAPSHOTS=1"
