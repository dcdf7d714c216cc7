"""`python -m docs.generate` fills the blocks of all pages; with `--check` it changes nothing and exits 1 where one is old."""

from __future__ import annotations

import sys

from docs.generate.blocks import filled, outdated, pages


def main(argv: list[str]) -> int:
    """Fill the blocks, or check them. Gives the exit status."""
    old = outdated(pages())
    for path in old:
        sys.stdout.write(f"docs/{path.name} {'is old' if argv else 'is new'}\n")
        if not argv:
            path.write_text(filled(path.read_text()))
    return int(bool(old and argv))


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: python -m docs.generate [--check]")
    sys.exit(main(sys.argv[1:]))
