"""One host of the lab, as a test handles it."""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.host import production
from tests.lab.host.addresses import Addresses, new_key
from tests.lab.host.cable import Cable
from tests.lab.host.contents import archive
from tests.lab.host.disk import Disk, shrink
from tests.lab.host.gpus import GpuState
from tests.lab.host.inside import finish, into_disk, into_running
from tests.lab.host.power import BootFailed, Power
from tests.lab.host.slot import Slot
from tests.lab.host.waiting import wait_for

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
LOGIN_UNITS = ("ssh.service", "systemd-user-sessions.service")
UNITS = "/etc/systemd/system"
GPUS = "/var/lib/lab/gpus.json"
WRITE = 'mkdir -p "${1%/*}"; cat >"$1.new"; chmod "$2" "$1.new"; chown "$3" "$1.new"; mv "$1.new" "$1"'


@dataclass(repr=False)
class LabHost:
    """A machine that is off at first. What it writes, it keeps as long as this object lives; /run and /tmp are new at each boot."""

    name: str
    slot: Slot
    disk: Disk
    cable: Cable
    power: Power
    addresses: Addresses
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __repr__(self) -> str:
        return f"<LabHost, {'on' if self.up else 'off'}; look inside: ssh -F {self.ssh_config} -l root {self.name}>"

    # ---- where it is ----

    @property
    def address(self) -> str:
        """Its IP address."""
        return self.slot.address

    @property
    def our_address(self) -> str:
        """How it sees this machine."""
        return self.slot.our_address

    def url(self, port: int, path: str = "") -> str:
        """Of a server on it."""
        return f"http://{self.address}:{port}{path}"

    @property
    def ssh_config(self) -> Path:
        """For the product: every host of this test by name, as the user expctl."""
        return self.addresses.ssh_config

    @property
    def known_hosts(self) -> Path:
        """For the product: the host keys of every host of this test."""
        return self.addresses.known_hosts

    @property
    def environment(self) -> dict[str, str]:
        """For the product's processes."""
        return {"EXPCTL_SSH_CONFIG": str(self.ssh_config), "EXPCTL_KNOWN_HOSTS": str(self.known_hosts)}

    # ---- power ----

    @property
    def up(self) -> bool:
        """Whether it has power; not whether anybody answers."""
        return self.power.on

    def provision(self, our_key: str) -> None:
        """What makes it this host and no other. Called once, when it is made."""
        with tempfile.TemporaryDirectory() as folder:
            public = new_key(Path(folder) / "host")
            private = (Path(folder) / "host").read_text()
        cable = f"MAC={self.cable.mac}\nADDRESS={self.address}\n"
        hosts = f"127.0.0.1 localhost\n{self.address} {self.name}\n{self.our_address} lab\n"
        texts = {"etc/hostname": self.name + "\n", "etc/hosts": hosts, "etc/lab-cable": cable, "etc/machine-id": uuid.uuid4().hex + "\n"}
        texts |= {"etc/lab-sim.json": production.sim_text(1.0, {}), GPUS[1:]: GpuState().text()}
        self._inside(["tar", "-x", "-C", "/", "--no-overwrite-dir"], "root", archive(texts, our_key, private, public), check=True)
        self.addresses.trust(self.name, self.address, public)

    def boot(self) -> None:
        """Switch it on and wait for its sshd. With the cable pulled, for what its systemd says of it. BootFailed says what it printed."""
        self.power.switch_on()
        try:
            wait_for(self.takes_logins, 30, f"{self.name} takes logins")
        except BaseException as error:
            text = f"{error}\n{self.power.tail()}\n{self.run('journalctl', '-b', '-n', '30', check=False).stdout}"
            self.power.cut()
            raise BootFailed(text) from error

    def power_cut(self) -> None:
        """Every process is gone at once, and nobody hears of it: no goodbye on any connection. What was written stays written."""
        self.power.cut()

    def power_off(self) -> None:
        """Switch it off in order."""
        self.power.switch_off()

    def reboot(self) -> None:
        """It goes down in order and comes back by itself, as after `systemctl reboot`."""
        self.power.restart()
        wait_for(self.takes_logins, 30, f"{self.name} takes logins")

    def remove(self) -> None:
        """End it and take everything of it from this machine."""
        try:
            self.power.cut()
        finally:
            self.slot.give_back()

    # ---- cable and sshd ----

    def pull(self) -> None:
        """Pull the cable: from now on silence, both ways. Works while it is off, too.

        A host that reboots without our `reboot` is unplugged again when it is next looked at, by `run` for one.
        """
        self.cable.pull()

    def plug(self) -> None:
        """Plug the cable in again."""
        self.cable.plug()

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Silence for a while."""
        self.pull()
        try:
            yield
        finally:
            self.plug()

    def has_sshd(self) -> bool:
        """Whether an sshd greets over the cable."""
        try:
            with socket.create_connection((self.address, 22), timeout=0.1) as probe:
                probe.settimeout(1)
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def takes_logins(self) -> bool:
        """Whether people get in, or would with the cable plugged in. Early in a boot sshd greets, but PAM refuses all but root."""
        if self.cable.plugged and not self.has_sshd():
            return False
        return all(self.run("systemctl", "is-active", "-q", unit, check=False).returncode == 0 for unit in LOGIN_UNITS)

    def stop_sshd(self) -> None:
        """Connections are refused from now on; those that are open stay."""
        self.run("systemctl", "stop", "ssh.service")

    def restart_sshd(self) -> None:
        """Connections that are open stay. Starts it, too."""
        self.run("systemctl", "restart", "ssh.service")
        wait_for(self.takes_logins, 10, f"{self.name} takes logins")

    def drop_connections(self) -> None:
        """Every SSH connection ends with a goodbye of the kernel's; new ones are taken."""
        self.run("pkill", "-KILL", "-f", r"^sshd: [a-z]+(@| \[priv\])", check=False)

    def change_host_key(self, *, trust: bool = False) -> None:
        """As a reinstalled machine would, or an impostor. `trust`: known_hosts has the new one."""
        with tempfile.TemporaryDirectory() as folder:
            public = new_key(Path(folder) / "host")
            self.write(HOST_KEY, (Path(folder) / "host").read_text(), mode=0o600)
        self.write(HOST_KEY + ".pub", public + "\n")
        if trust:
            self.addresses.trust(self.name, self.address, public)
        if self.up:
            self.restart_sshd()

    # ---- looking and changing from inside ----

    def run(self, *argv: str, user: str = "root", check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command inside, whatever the network is like. A host that is off has its disk, but no process and no systemd to ask.

        It has the host's rights and no others: even as root it cannot touch this machine. Best not while the host goes down: it waits
        ten seconds for what entered it then.
        """
        done = self._inside(argv, user, stdin.encode(), check=check)
        out, err = (said.decode(errors="replace") for said in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(argv, done.returncode, out, err)

    def _command(self, argv: Sequence[str], user: str) -> list[str]:
        while True:
            init = self.power.wait_init()
            if init is None:
                return into_disk(self.disk, argv, user)
            with suppress(OSError):  # its process 1 has ended in this very moment: look again
                return into_running(init, argv, user)

    def _inside(self, argv: Sequence[str], user: str, stdin: bytes, *, check: bool) -> subprocess.CompletedProcess[bytes]:
        done = finish(self._command(argv, user), stdin, 120)
        if check and done.returncode != 0:
            said = (done.stdout + done.stderr).decode(errors="replace")
            raise AssertionError(f"{self.name}: {' '.join(argv)} ended with status {done.returncode}:\n{said}")
        return done

    def ssh(self, *argv: str, user: str = "root", check: bool = True, timeout: float = 10.0) -> subprocess.CompletedProcess[str]:
        """Run a command by this machine's own ssh, over the cable. subprocess.TimeoutExpired where nobody answers."""
        command = ["ssh", "-F", str(self.ssh_config), "-l", user, "-o", "BatchMode=yes", self.name, "--", *argv]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check, timeout=timeout)

    def write(self, path: str, text: str, mode: int = 0o644, owner: str = "root:root") -> None:
        """Put a file there, whole or not at all."""
        self.run("sh", "-ec", WRITE, "sh", path, f"{mode:o}", owner, stdin=text)

    def read(self, path: str) -> str:
        """A file's text."""
        return self.run("cat", path).stdout

    def exists(self, path: str) -> bool:
        """Whether there is such a path."""
        return self.run("test", "-e", path, check=False).returncode == 0

    def sudoers(self, *lines: str) -> None:
        """All that sudo is told beside the distribution's own; none for nothing."""
        self.write("/etc/sudoers.d/lab", "".join(line + "\n" for line in lines), mode=0o440)

    # ---- units ----

    def put_unit(self, name: str, text: str, drop_ins: Mapping[str, str] | None = None, *, enable: bool = False) -> None:
        """A unit as a person would write it into /etc, with drop-ins by name. Not started."""
        self.write(f"{UNITS}/{name}", text)
        for drop_in, its_text in (drop_ins or {}).items():
            self.write(f"{UNITS}/{name}.d/{drop_in}", its_text)
        if self.up:
            self.run("systemctl", "daemon-reload")
        if enable:
            self.run("systemctl", "enable", "-q", name)

    def show(self, unit: str, what: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", f"--property={what}", unit).stdout.strip()

    def active(self, unit: str) -> bool:
        """Whether a unit runs."""
        return self.show(unit, "ActiveState") == "active"

    def journal(self, unit: str) -> str:
        """What a unit has printed, and what systemd said of it, over all boots."""
        return self.run("journalctl", "-o", "cat", "--no-pager", "-u", unit).stdout

    # ---- the simulated engine ----

    def sim(self, title_after_s: float | None = 1.0, **knobs: str) -> None:
        """Settings of every simulated engine that starts from now on: LOAD_SECONDS="5", FAULT="oom_at_load" and others.

        What a unit's own environment says comes first. `title_after_s`: when its main process takes the title VLLM::APIServer, as one of
        several API servers does; None for never, as a vLLM with a single one.
        """
        self.write("/etc/lab-sim.json", production.sim_text(title_after_s, knobs))

    def install_production(
        self,
        name: str = production.NAME,
        port: int = 8000,
        gpus: str = "0,1,2,3,4,5,6,7",
        env: Mapping[str, str] | None = None,
        extra: str = "",
    ) -> None:
        """An enabled unit of the user vllm. It starts, and serves when this returns, where the host is up."""
        stem = name.removesuffix(".service")
        self.write(f"/etc/default/{stem}", production.defaults_text(extra, env or {}))
        self.put_unit(name, production.unit_text(name, port, gpus), enable=True)
        if self.up:
            self.run("systemctl", "start", name)
            self.wait_serving(port)

    def is_serving(self, port: int = 8000) -> bool:
        """Whether an engine there says it is healthy, asked from inside."""
        asked = self.run("curl", "-sf", "-m", "5", "-o", "/dev/null", f"http://{self.address}:{port}/health", check=False)
        return asked.returncode == 0

    def wait_serving(self, port: int = 8000, seconds: float = 30.0) -> None:
        """Until it is."""
        wait_for(lambda: self.is_serving(port), seconds, f"{self.name} serves on port {port}")

    # ---- GPUs ----

    def write_gpus(self, state: GpuState | None = None) -> None:
        """What nvidia-smi says beside the memory that live engines hold; nothing, for a sound machine."""
        self.write(GPUS, (state or GpuState()).text())

    def gpu_memory(self) -> list[int]:
        """MiB in use on each GPU, as nvidia-smi says."""
        asked = self.run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
        return [int(line) for line in asked.stdout.split()]

    def hold_gpus(
        self, gpus: Sequence[int] = (0,), used_mib: int = 5000, user: str = "ops", name: str = "python3", *, orphan: bool = False
    ) -> int:
        """Start a real process that holds memory of GPUs; its number inside. An orphan belongs to no unit that lives."""
        unit = f"holder-{next(self._numbers)}.service"
        before = self._holders()
        start = ["systemd-run", "-q", "--collect", f"--unit={unit}", f"--uid={user}", "--property=KillMode=process"]
        self.run(*start, "/opt/lab/hold-gpus", name, str(used_mib), ",".join(map(str, gpus)), *(["orphan"] if orphan else []))
        new = wait_for(lambda: self._holders() - before, 10, f"{unit} holds GPUs")
        return new.pop()

    def _holders(self) -> set[int]:
        return {int(number) for number in re.findall(r"^engine-(\d+)\.json$", self.run("ls", "/run/gpus").stdout, re.MULTILINE)}

    # ---- a full disk ----

    @contextmanager
    def full_disk(self, place: str = "/") -> Iterator[None]:
        """No byte is left at `place` for a while: the root of a host that was made with `disk_mib`, or one of its tmpfs, as /run."""
        if place == "/":
            self.disk.fill()
            try:
                yield
            finally:
                self.disk.relieve()
            return
        enter = ["nsenter", "-t", str(self.power.init), "-m", "-r", "--"]
        options = self.run("findmnt", "-n", "-o", "OPTIONS", "--mountpoint", place).stdout
        [size] = re.findall(r"size=(\w+)", options)
        shrink(Path(place), enter)
        try:
            yield
        finally:
            self.run("mount", "-o", f"remount,size={size}", place)
