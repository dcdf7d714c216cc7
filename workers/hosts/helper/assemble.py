"""Join the helper's modules into the one file that an admin reads and installs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from workers.hosts.helper.config import default_config
from workers.hosts.helper.places import INSTALLED
from workers.hosts.helper.request import USER

__all__ = ["assemble", "default_config", "sudoers_line"]

PARTS = (
    *("refusals", "processes", "places", "request", "files", "programs", "systemd", "config", "state", "context", "observing"),
    *("unitfile", "compose", "sources", "comeback", "writing", "acting", "workfolders", "journal", "looking", "deadman", "main"),
)
"""In an order in which each uses only those before it, as the imports say."""
PACKAGE = __name__.rpartition(".")[0]
HEAD = '''#!/usr/bin/python3 -I
"""expctl-host: what expctl may do on this host.

Reads one JSON object from stdin and writes one to stdout. Only the standard library of Python 3.8 or newer is used, no shell is run.
What it does and does not do, and how to take it away again, stands in expctl's docs/host-helper.md.
"""

from __future__ import annotations

'''


def assemble() -> str:
    """The text of expctl-host: the same for the same sources. ValueError where two modules share a name."""
    plain: set[str] = set()
    named: dict[str, set[str]] = {}
    bodies: list[str] = []
    taken: dict[str, str] = {}
    for part in PARTS:
        text = Path(__file__).with_name(f"{part}.py").read_text(encoding="utf-8")
        tree = ast.parse(text)
        _check_names(part, tree, taken)
        for node in tree.body:
            if isinstance(node, ast.Import):
                plain |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__" and not node.module.startswith(PACKAGE):
                named.setdefault(node.module, set()).update(alias.name for alias in node.names)
        bodies.append(_body(part, text, tree))
    for name in {*plain, *(one for names in named.values() for one in names)} & set(taken):
        raise ValueError(f"{name} is imported, and defined in {taken[name]}")
    imports = [f"import {name}\n" for name in sorted(plain)]
    imports += [f"from {module} import {', '.join(sorted(names))}\n" for module, names in sorted(named.items())]
    return HEAD + "".join(imports) + "".join(bodies)


def _check_names(part: str, tree: ast.Module, taken: dict[str, str]) -> None:
    """In one file there is one namespace: a second definition would silently replace the first."""
    for name in _defined(tree):
        if name in taken:
            raise ValueError(f"{name} is defined in {taken[name]} and in {part}")
        taken[name] = part


def _defined(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [found.id for target in targets for found in ast.walk(target) if isinstance(found, ast.Name)]
    return names


def _body(part: str, text: str, tree: ast.Module) -> str:
    """A module without its imports; its docstring becomes the banner. Notes to linters are for nobody on a host."""
    lines = text.split("\n")
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    docstring = tree.body[0]
    rest = "\n".join(lines[docstring.end_lineno :]).strip("\n")
    rest = re.sub(r"  # (?:noqa|type: ignore)\b[^\n]*", "", rest)
    title = (ast.get_docstring(tree) or "").replace("\n", "\n# ")
    return f"\n\n# {'-' * 76}\n# {part}: {title}\n# {'-' * 76}\n\n{rest}\n"


def sudoers_line(user: str) -> str:
    """The one line for sudoers, without a newline. ValueError where `user` is not a user's name."""
    if USER.fullmatch(user) is None:
        raise ValueError(f"{user!r} is not the name of a user")
    return f"{user} ALL=(root) NOPASSWD: {INSTALLED}"
