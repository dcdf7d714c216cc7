"""Which keys a host may show, as OpenSSH's known_hosts files say; and the project's own file of that kind."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import fnmatch
import hashlib
import hmac
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.domain.reasons import Reason
from workers.hosts.base import HostError
from workers.hosts.transport import TransportError
from workers.hosts.units import os_errors

SSH_PORT = 22
MARKERS = ("@cert-authority", "@revoked")


@dataclass(frozen=True)
class HostKey:
    """A public key that a host has shown, or that a file names."""

    kind: str
    """Such as ssh-ed25519 or ssh-rsa."""
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As OpenSSH writes it: SHA256:..."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")

    def __str__(self) -> str:
        return f"{self.fingerprint} ({self.kind})"


@dataclass(frozen=True)
class Pin:
    """A line of a known_hosts file that names the host."""

    key: HostKey
    path: Path
    line: int
    marker: str = ""

    def __str__(self) -> str:
        return f"{self.key} in {self.path} line {self.line}"


@dataclass(frozen=True)
class Pins:
    """What is known of one host."""

    name: str
    trusted: tuple[Pin, ...] = ()
    elsewhere: tuple[Pin, ...] = ()
    """Of the same host at the usual port, where it is reached at another: its keys count, but may differ."""
    revoked: tuple[Pin, ...] = ()
    authorities: tuple[Pin, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Types of key that it may be asked for first."""
        return tuple(dict.fromkeys(pin.key.kind for pin in self.trusted + self.elsewhere))

    def check(self, shown: HostKey) -> None:
        """TransportError host_key_changed or host_key_unknown unless this key is a pinned one."""
        for pin in self.revoked:
            if pin.key == shown:
                raise TransportError(
                    Reason.HOST_KEY_CHANGED, f"{self.name} shows {shown}, revoked in {pin.path} line {pin.line}", "not_executed"
                )
        if any(pin.key == shown for pin in self.trusted + self.elsewhere):
            return
        if self.trusted:
            pinned = "; ".join(map(str, self.trusted))
            raise TransportError(Reason.HOST_KEY_CHANGED, f"{self.name} shows {shown}; pinned: {pinned}", "not_executed")
        evidence = f"{self.name} shows {shown}, and no known_hosts file names it"
        if self.authorities:
            where = self.authorities[0]
            evidence += (
                f" ({where.path} line {where.line} is a certificate authority: certificates of hosts are not supported, pin the key)"
            )
        raise TransportError(Reason.HOST_KEY_UNKNOWN, evidence, "not_executed")


def name_of(host: str, port: int) -> str:
    """How known_hosts writes a host that is reached at a port."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


def pins_of(host: str, port: int, own: Path | None, others: Sequence[Path]) -> Pins:
    """What the files say of a host.

    Where our own file names it, only that file's keys count: a pin is stricter than what somebody typed `yes` to. Revoked keys
    count from every file. TransportError permission_denied where a file cannot be read; one that is not there is empty.
    """
    name = name_of(host, port)
    files = ([own] if own is not None else []) + [path for path in others if path != own]
    lines = [pin for path in files for pin in _lines_of(path, name)]
    trusted = [pin for pin in lines if not pin.marker]
    ours = [pin for pin in trusted if pin.path == own]
    elsewhere = [] if trusted or port == SSH_PORT else [pin for path in files for pin in _lines_of(path, host.lower()) if not pin.marker]
    return Pins(
        name,
        tuple(ours or trusted),
        tuple(elsewhere),
        tuple(pin for pin in lines if pin.marker == "@revoked"),
        tuple(pin for pin in lines if pin.marker == "@cert-authority"),
    )


def pin_keys(path: Path, name: str, keys: Sequence[HostKey], *, replace: bool = False) -> None:
    """Write a host's keys into a known_hosts file, all at once and for its owner's eyes only.

    `name` is as name_of gives it. Where the file names the host with other keys already: HostError host_key_changed, unless
    `replace` is set, which takes the host's name from those lines. HostError permission_denied or disk_full where it cannot be written.
    """
    path = path.expanduser().resolve()  # a link is kept a link
    with os_errors():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            old = [pin for pin in _lines_of(path, name) if not pin.marker]
            strange = [pin for pin in old if pin.key not in keys]
            if strange and not replace:
                raise HostError(Reason.HOST_KEY_CHANGED, f"{name} is pinned with another key already: {'; '.join(map(str, strange))}")
            text = _without(path, name, {pin.line for pin in strange})
            kept = {pin.key for pin in old}
            text += "".join(f"{name} {key.kind} {base64.b64encode(key.blob).decode()}\n" for key in keys if key not in kept)
            _write(path, text)


def _lines_of(path: Path, name: str) -> list[Pin]:
    found = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0] in MARKERS else ""
        if len(fields) < 3 or fields[0].startswith("#") or not _matches(fields[0], name):  # noqa: PLR2004 - names, type, key
            continue
        try:
            blob = base64.b64decode(fields[2], validate=True)
        except binascii.Error:  # OpenSSH passes over such a line too
            continue
        found.append(Pin(HostKey(fields[1], blob), path, number, marker))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise TransportError(Reason.PERMISSION_DENIED, str(error), "not_executed") from error


def _matches(patterns: str, name: str) -> bool:
    """Whether a line's first field names the host: plain, hashed, with wildcards, or excluded by `!`."""
    if patterns.startswith("|1|"):
        return _hash_matches(patterns, name)
    matched = False
    for pattern in patterns.lower().split(","):
        wanted = not pattern.startswith("!")
        # The brackets of [host]:port are no set of characters.
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if not wanted:
                return False
            matched = True
    return matched


def _hash_matches(field: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in field.split("|")[2:4])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)


def _without(path: Path, name: str, numbers: set[int]) -> str:
    """The file's text, the host's name taken from the lines of those numbers."""
    lines = []
    for number, line in enumerate(_read(path).splitlines(), 1):
        if number not in numbers:
            lines.append(line)
            continue
        patterns, _, rest = line.strip().partition(" ")
        others = [] if patterns.startswith("|") else [pattern for pattern in patterns.split(",") if pattern.lower() != name]
        if others and _matches(",".join(others), name):
            others.append(f"!{name}")  # a wildcard stays for the other hosts
        if others:
            lines.append(f"{','.join(others)} {rest}")
    return "".join(line + "\n" for line in lines)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the folder is locked, since the file itself is replaced."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, text: str) -> None:
    """A reader sees the old file or the new one, never a part of either."""
    handle, temporary = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # of mode 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
