"""The text of a unit of ours: rendered, or forked from another's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.hosts.helper.refusals import PERMISSION_DENIED, UNIT_SYNTAX, Refused

HEAD = "# Written by expctl-host. Replaced at every start, gone after a reboot.\n"
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NONCHARACTER = re.compile("[\ufdd0-\ufdef" + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF)) + "]")
"""Unicode's own. systemd passes over a whole line that holds one, and where it is written byte by byte it cannot show the unit any more."""
ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
WORK = "expctl-work"
"""In /var/lib: folders that commands work in, one a unit."""
MEANT_IN_QUOTES = re.compile(r"""[\\"`$]""")
LITERAL = {"%": "%%", "$": "$$"}
SYSTEMDS_OWN = re.compile(
    r"(LISTEN_|WATCHDOG_).*|INVOCATION_ID|NOTIFY_SOCKET|MAINPID|MANAGERPID|JOURNAL_STREAM|SYSTEMD_EXEC_PID|CREDENTIALS_DIRECTORY"
)
"""Variables by which systemd and the program talk. LD_PRELOAD and the like are no danger here: who may set them chooses the program
itself anyway, and where a part of the unit runs as root no variable may be set at all."""


@dataclass(frozen=True)
class Order:
    """What a request wants to have run, checked. `user` None: the first of run_as, or the original's."""

    unit: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    user: str | None
    conflicts: tuple[str, ...]
    once: bool = False
    """A program that does its work and ends: systemd keeps how it ended, and gives it a folder of its own unless `cwd` is given."""


def quoted(word: str, *, alive: bool = False) -> str:
    """A word for ExecStart. `alive`: `%` and `$` keep their meaning to systemd, else they are themselves.

    Always in double quotes, since systemd removes quotes in the middle of a word too, and a bare `;` ends a command.
    """
    return '"' + "".join(_escaped(character, alive=alive) for character in word) + '"'


def _escaped(character: str, *, alive: bool) -> str:
    if character in LITERAL and not alive:
        return LITERAL[character]
    if CONTROL.match(character) and character not in ESCAPES:
        return f"\\x{ord(character):02x}"
    if NONCHARACTER.match(character):
        raise Refused(UNIT_SYNTAX, f"an argument holds the noncharacter U+{ord(character):04X}, which systemd cannot carry")
    return ESCAPES.get(character, character)


def check_program(word: str) -> None:
    """Refuse a first word that systemd would not take as it stands: it is a path, and no quoting protects its first characters."""
    if CONTROL.search(word) or any(sign in word for sign in "\"'\\$"):
        raise Refused(
            UNIT_SYNTAX, f"the program {word[:200]!r} has quotes, backslashes, dollars or control characters, which systemd refuses"
        )
    if re.search(r"//|/\.(/|$)|/$", word):
        raise Refused(UNIT_SYNTAX, f"the program {word[:200]!r} has needless slashes or dots, which systemd takes out")


def check_folder(path: str) -> None:
    """Refuse a working directory that a unit file cannot say."""
    odd = CONTROL.search(path) or NONCHARACTER.search(path) or "\\" in path or path != path.strip()
    if not path.startswith("/") or odd or len(path) > 4000:  # noqa: PLR2004
        raise Refused(UNIT_SYNTAX, f"the working directory {path[:200]!r} must be absolute, without backslashes and control characters")


def check_variables(env: Mapping[str, str]) -> None:
    """Refuse variables that systemd would drop without a word, or that are its own."""
    for name, value in env.items():
        if SYSTEMDS_OWN.fullmatch(name):
            raise Refused(PERMISSION_DENIED, f"{name} is set by systemd")
        if CONTROL.search(value.replace("\t", "").replace("\n", "")) or NONCHARACTER.search(value):
            raise Refused(UNIT_SYNTAX, f"the value of {name} has control or noncharacters, which systemd drops from an environment")


def environment_file(env: Mapping[str, str]) -> str:
    """The text of an EnvironmentFile. In double quotes only these four mean something, and lines may be several."""
    return "".join(f'{name}="{MEANT_IN_QUOTES.sub(_backslashed, value)}"\n' for name, value in sorted(env.items()))


def _backslashed(match: re.Match[str]) -> str:
    return "\\" + match.group(0)


def rendered(order: Order, environment_path: str | None) -> str:
    """A unit from nothing but the order."""
    check_program(order.words[0])
    if not order.words[0].startswith("/"):
        raise Refused(UNIT_SYNTAX, f"the program {order.words[0][:200]!r} must be an absolute path")
    service = [
        # systemd has it started only once the program runs; simple would call a missing program a success.
        "Type=exec",
        *_who_and_where(order, environment_path),
        "ExecStart=" + " ".join(quoted(word) for word in order.words),
        # All of the unit's processes are ended with it: left-over ones hold GPU memory.
        "KillMode=control-group",
        "TimeoutStopSec=120",
        "LimitNOFILE=65535",
        "LimitMEMLOCK=infinity",
        *_always(),
        *(_kept(order) if order.once else ()),
    ]
    return _unit_text(order, {"Unit": [], "Service": service})


def _kept(order: Order) -> list[str]:
    """What succeeded would be forgotten at once, and its folder belongs to whoever runs it."""
    folder = f"{WORK}/{order.unit.rpartition('.')[0]}"
    return ["RemainAfterExit=yes"] + ([] if order.cwd else [f"StateDirectory={folder}", f"WorkingDirectory=/var/lib/{folder}"])


def forked(order: Order, kept: Mapping[str, Sequence[str]], original_user: str, environment_path: str | None) -> str:
    """A copy's lines, and a last block of ours, which therefore wins."""
    who = _who_and_where(order, environment_path)
    if order.user is not None and order.user != original_user:
        who += ["Group=", "SupplementaryGroups="]  # the original user's
    service = [
        *kept["Service"],
        *who,
        "ExecStart=",
        "ExecStart=" + " ".join(quoted(word, alive=True) for word in order.words),
        "RemainAfterExit=no",
        "SendSIGKILL=yes",
        # Where the program has to say that it is ready, an experiment's load may take longer than the original's, and is watched anyway.
        "TimeoutStartSec=infinity",
        *_always(),
    ]
    return _unit_text(order, {"Unit": list(kept["Unit"]), "Service": service})


def _who_and_where(order: Order, environment_path: str | None) -> list[str]:
    lines = []
    if order.user is not None:
        lines.append(f"User={order.user}")
    if order.cwd is not None:
        lines.append("WorkingDirectory=" + order.cwd.replace("%", "%%"))
    if environment_path is not None:
        # A file, not Environment=, which everybody on the host can read.
        lines.append(f"EnvironmentFile={environment_path}")
    return lines


def _always() -> list[str]:
    # Restart: a crash is a finding. The limit: a debug load prints more than 10000 lines in 30 s.
    return ["Restart=no", "StandardInput=null", "StandardOutput=journal", "StandardError=journal", "LogRateLimitIntervalSec=0"]


def _unit_text(order: Order, sections: Mapping[str, Sequence[str]]) -> str:
    unit = [*sections["Unit"], f"Description=expctl: {order.unit.rpartition('.')[0]}"]
    if order.conflicts:
        # After=: whoever starts one of them by hand has it start only when ours is gone from the GPUs.
        unit += [f"Conflicts={' '.join(order.conflicts)}", f"After={' '.join(order.conflicts)}"]
    return HEAD + "\n".join(["[Unit]", *unit, "", "[Service]", *sections["Service"], ""])
