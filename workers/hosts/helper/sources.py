"""An existing unit, as its files and systemd have it: what is parked or forked."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.hosts.helper.files import read_admins
from workers.hosts.helper.places import Places
from workers.hosts.helper.processes import Processes
from workers.hosts.helper.refusals import PERMISSION_DENIED, UNIT_SYNTAX, Refused
from workers.hosts.helper.systemd import Systemd, number

FOLDERS = ("/etc/systemd/", "/run/systemd/", "/usr/lib/systemd/", "/lib/systemd/", "/usr/local/lib/systemd/")
FILE_LISTED = re.compile(r"(/.+) \(ignore_errors=(yes|no)\)")


@dataclass(frozen=True)
class Source:
    """A unit's files, (path, text) in the order in which they apply, and its properties."""

    unit: str
    files: tuple[tuple[str, str], ...]
    show: dict[str, str]

    @property
    def sha256(self) -> str:
        """Over all files: a change of any of them changes it."""
        return hashlib.sha256(json.dumps(self.files).encode()).hexdigest()


def read_source(systemd: Systemd, places: Places, unit: str) -> Source:
    """The files are where systemd says. Refused where there is no such unit, or another than root could write its files."""
    if unit.rpartition(".")[0].endswith("@"):
        raise Refused(UNIT_SYNTAX, f"{unit} is a template and runs nothing by itself: name an instance of it")
    show = systemd.show(unit)
    if show["LoadState"] == "masked":
        raise Refused(UNIT_SYNTAX, f"{unit} is masked, so that systemd starts it for nobody: systemctl unmask {unit}")
    if not show.get("FragmentPath"):
        raise Refused(UNIT_SYNTAX, f"{unit} has no file on this host (LoadState={show['LoadState']})")
    paths = [show["FragmentPath"], *show.get("DropInPaths", "").split()]
    for path in paths:
        if not path.startswith(FOLDERS) or ".." in path.split("/"):
            raise Refused(PERMISSION_DENIED, f"{path} of {unit} is in none of systemd's folders")
    return Source(unit, tuple((path, read_admins(Path(places.root + path))) for path in paths), show)


def live(processes: Processes, show: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """The running main process's arguments and environment; empty where none runs."""
    pid = number(show, "MainPID")
    return (processes.command_line(pid), processes.variables(pid)) if pid else ([], {})


def environment_files(systemd: Systemd, unit: str) -> list[tuple[str, bool]]:
    """(path, whether systemd goes on without it) of each EnvironmentFile=; a path may be a pattern."""
    return [(path, optional == "yes") for path, optional in FILE_LISTED.findall(systemd.value(unit, "EnvironmentFiles"))]


def written_variables(systemd: Systemd, places: Places, unit: str) -> tuple[dict[str, str], bool]:
    """What Environment= and the EnvironmentFile= give to the next start, and whether that is all of it.

    A file that is not root's alone, or that is named by a pattern, gives nothing: systemd reads it, we do not.
    """
    words = _words(systemd.value(unit, "Environment"))
    found = {name: value for name, equals, value in (word.partition("=") for word in words) if equals}
    read = [_variables_in(places, path) for path, _ in environment_files(systemd, unit)]
    for variables in read:
        found.update(variables or {})
    return found, None not in read


def _variables_in(places: Places, path: str) -> dict[str, str] | None:
    """Those of one file, none of a file that is missing; None where that cannot be known."""
    if re.search(r"[*?\[]", path):
        return None
    if not Path(places.root + path).exists():
        return {}
    try:
        return environment_of(read_admins(Path(places.root + path)))
    except Refused:
        return None


def _words(text: str) -> Sequence[str]:
    try:
        return shlex.split(text.replace("$'", "'"))
    except ValueError:
        return text.split()


def environment_of(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile, by systemd's rules: quotes, backslashes, continued lines, comments."""
    pattern = re.compile(
        r"""[ \t]*(?:[#;](?:\\\n|[^\n])*|([A-Za-z_]\w*)[ \t]*=[ \t]*((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\\\n"'])*)|[^\n]*)(?:\n|\Z)""",
        re.DOTALL | re.ASCII,
    )
    found = {}
    for match in pattern.finditer(text):
        if match.group(1):
            found[match.group(1)] = _unquoted(match.group(2))
    return found


def _unquoted(text: str) -> str:
    value, blanks = "", ""
    for piece in re.findall(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|.""", text, re.DOTALL):
        if piece in (" ", "\t"):  # at the end they do not count
            blanks += piece
            continue
        value += blanks
        blanks = ""
        if piece.startswith("'"):
            value += piece[1:-1]
        elif piece.startswith('"'):
            value += re.sub(r'\\(?:\n|([\\"`$]))', r"\1", piece[1:-1])
        elif piece.startswith("\\"):
            value += piece[1:].replace("\n", "")
        else:
            value += piece
    return value
