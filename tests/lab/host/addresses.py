"""How programs on this machine find a test's hosts: an ssh_config and a known_hosts, and the key for both."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Addresses:
    """One test's. Rewritten as a whole whenever a host is added or trusted anew."""

    folder: Path
    key: Path
    hosts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By name: address, and the public key that is trusted."""

    @property
    def ssh_config(self) -> Path:
        """Names, users and keys, in OpenSSH's words."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The host keys that are trusted, by name and by address."""
        return self.folder / "known_hosts"

    def trust(self, name: str, address: str, public_key: str) -> None:
        """Add a host, or take its new key for the right one."""
        self.hosts[name] = (address, public_key)
        self._write()

    def forget(self, name: str) -> None:
        """As if it had never been seen."""
        self.hosts.pop(name, None)
        self._write()

    def _write(self) -> None:
        stanzas = [
            f"Host {name}\n  HostName {address}\n  User expctl\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n"
            for name, (address, _) in self.hosts.items()
        ]
        self.ssh_config.write_text("\n".join(stanzas))
        self.known_hosts.write_text("".join(f"{name},{address} {key}\n" for name, (address, key) in self.hosts.items()))


def new_key(path: Path) -> str:
    """Make a key pair at `path`; the public half."""
    for old in (path, path.with_name(path.name + ".pub")):
        old.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True)
    return " ".join(path.with_name(path.name + ".pub").read_text().split()[:2])
