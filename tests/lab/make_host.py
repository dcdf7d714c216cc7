#!/usr/bin/env python3
"""Builds the root of the lab's hosts: this machine's own distribution, with systemd, journald, sshd, sudo and three users.

usage: make_host.py DIR          (0.3 GB and about a minute, once; as root; nothing happens where it is there already)

What differs between two hosts (keys, addresses, the simulated engine) is put in when a test makes one: see tests/lab/host.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PROGRAMS = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "ip": "iproute2", "ssh": "openssh-client"}
PACKAGES = "systemd,systemd-sysv,dbus,libpam-systemd,openssh-server,sudo,procps,iproute2,python3,curl,libnuma1,libgomp1"
PEOPLE = ("expctl", "ops")
SERVICE_USER = "vllm"
# They would run at some time of their own and take a core from a test.
UNWANTED = ("apt-daily", "apt-daily-upgrade", "dpkg-db-backup", "e2scrub_all", "fstrim", "man-db")
NETWORK_UNIT = """\
[Unit]
Description=The lab's cable
Before=network.target ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=/etc/lab-cable
ExecStart=ip link set host0 address ${MAC}
ExecStart=ip address add ${ADDRESS}/24 dev host0
ExecStart=ip link set host0 up
[Install]
WantedBy=multi-user.target
"""
SSHD = "HostKey /etc/ssh/ssh_host_ed25519_key\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"
GPU_FOLDER = "d /run/gpus 0777 root root -\n"


def main() -> None:
    """Build what is missing."""
    lab = Path(sys.argv[1])
    root = root_of(lab)
    if is_built(lab):
        print(f"the root of the lab's hosts is there: {root}")
        return
    print(f"building the root of the lab's hosts in {root}; this takes a minute once", flush=True)
    build(lab)


def root_of(lab: Path) -> Path:
    """Where the root belongs: another recipe, another folder."""
    recipe = Path(__file__).read_bytes() + repr((suite(), mirror())).encode()
    return lab / f"host-root-{hashlib.sha256(recipe).hexdigest()[:12]}"


def is_built(lab: Path) -> bool:
    """Whether it was built to the end."""
    return complete(root_of(lab)).exists() and not missing_programs()


def complete(root: Path) -> Path:
    """The file that says so."""
    return root.with_name(root.name + ".complete")


def missing_programs() -> list[str]:
    """Packages that this machine lacks."""
    return [package for program, package in PROGRAMS.items() if shutil.which(program) is None]


def build(lab: Path) -> Path:
    """The root, built where it is missing. Two at a time wait for each other."""
    if os.geteuid() != 0:
        sys.exit("the lab's hosts need root: they are containers with a systemd of their own")
    lab.mkdir(parents=True, exist_ok=True)
    with (lab / "host-root.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = root_of(lab)
        install_programs()
        if not complete(root).exists():
            remove_others(lab, root)
            bootstrap(root)
            finish(root)
            complete(root).touch()
    return root


def install_programs() -> None:
    """Only what is missing, and no word to the package manager where nothing is."""
    missing = missing_programs()
    if missing:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=True, env=environment)
        subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing], check=True, env=environment)


def remove_others(lab: Path, keep: Path) -> None:
    """Roots of earlier recipes, unless a host stands on one right now, and what an interrupted build has left."""
    for marker in lab.glob("host-root-*.complete"):
        root = marker.with_suffix("")
        in_use = any(str(root) in path.read_text() for path in lab.glob("hosts/*/root"))
        if root != keep and not in_use:
            marker.unlink()
            marker.with_suffix(".log").unlink(missing_ok=True)
            shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(keep, ignore_errors=True)


def bootstrap(root: Path) -> None:
    """The distribution itself, from where this machine gets its own packages."""
    argv = ["debootstrap", "--variant=minbase", "--components=main", f"--include={PACKAGES}", suite(), str(root), mirror()]
    log = root.with_name(root.name + ".log")
    with log.open("wb") as out:
        done = subprocess.run(argv, stdout=out, stderr=out, env=os.environ | apt_proxies(), check=False)
    if done.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        sys.exit(f"debootstrap ended with status {done.returncode}; the end of {log}:\n{tail}")


def suite() -> str:
    """The distribution's name for its release. The same as here, so that programs of this machine run in the host too."""
    [name] = re.findall(r'^VERSION_CODENAME="?([a-z]+)', Path("/etc/os-release").read_text(), re.MULTILINE)
    return str(name)


def mirror() -> str:
    """Where this machine's packages of that release come from."""
    apt = Path("/etc/apt")
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else ():
            found = re.match(rf"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{suite()}\s", line)
            if found:
                return str(found[1])
    for path in sorted(apt.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            fields: dict[str, str] = dict(re.findall(r"^(URIs|Suites):\s*(.+)$", stanza, re.MULTILINE))
            if suite() in fields.get("Suites", "").split():
                return fields["URIs"].split()[0]
    return "http://deb.debian.org/debian"


def apt_proxies() -> dict[str, str]:
    """debootstrap fetches by itself and does not read what apt is told of proxies."""
    found = {}
    for scheme in ("http", "https"):
        asked = subprocess.run(["apt-config", "shell", "VALUE", f"Acquire::{scheme}::Proxy"], capture_output=True, text=True, check=False)
        value = re.search(r"VALUE='([^']+)'", asked.stdout)
        if value and value[1] != "DIRECT":
            found[f"{scheme}_proxy"] = value[1]
    return found


def finish(root: Path) -> None:
    """What all hosts have in common."""
    inside("useradd", "--system", "--create-home", "--home-dir", f"/var/lib/{SERVICE_USER}", SERVICE_USER, root=root)
    for name in PEOPLE:
        inside("useradd", "--create-home", "--shell", "/bin/bash", "--password", "*", name, root=root)
    texts = {
        "etc/systemd/system/lab-cable.service": NETWORK_UNIT,
        "etc/ssh/sshd_config.d/lab.conf": SSHD,
        "etc/tmpfiles.d/lab.conf": GPU_FOLDER,
        "etc/resolv.conf": "",  # nobody to ask, so that nothing waits for an answer
    }
    for name, text in texts.items():
        with suppress(FileNotFoundError):
            (root / name).unlink()
        (root / name).write_text(text)
    for key in root.glob("etc/ssh/ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
    (root / "var/log/journal").mkdir(exist_ok=True)  # so that journald keeps the journal over a reboot
    # A Python that a test binds is often somebody's own, in a home that users of the host then must get through.
    (root / "root").chmod(0o711)
    shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
    inside("systemctl", "enable", "-q", "lab-cable.service", "ssh.service", root=root)
    inside("systemctl", "mask", "-q", "console-getty.service", *(f"{name}.timer" for name in UNWANTED), root=root)


def inside(*argv: str, root: Path) -> None:
    """Run a command in the root; its failure is ours."""
    subprocess.run(["chroot", str(root), *argv], check=True)


if __name__ == "__main__":
    main()
