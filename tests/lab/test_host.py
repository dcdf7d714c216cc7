"""The lab's hosts themselves: what the fault tests stand on must be true."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.lab.host import Foreign, GpuState, Lab, LabHost, NewHost, wait_for
from tests.lab.host.power import BootFailed
from workers.hosts.nvidia import GPU_FIELDS, HOLDER_FIELDS, STATE_FIELDS

pytestmark = pytest.mark.lab

PRODUCTION = "vllm-prod.service"
MOUNTED = "test -e /proc/self || mount -t proc proc /proc; "
IDLE = [4] * 8
LOADED = [90004] * 8


def argv_of(host: LabHost, pid: str) -> list[str]:
    return [word for word in host.read(f"/proc/{pid}/cmdline").split("\0") if word]


def query(host: LabHost, what: str, *fields: str) -> list[list[str]]:
    """As the product asks."""
    asked = host.run("nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits", user="expctl")
    return [line.split(", ") for line in asked.stdout.splitlines()]


def get(url: str) -> httpx.Response:
    return httpx.get(url, timeout=5, trust_env=False)


def test_boots_in_a_moment(new_host: NewHost) -> None:
    host = new_host(boot=False)
    began = time.monotonic()
    host.boot()
    assert time.monotonic() - began < 3
    assert host.ssh("hostname").stdout == "gpu0\n"
    wait_for(lambda: host.run("systemctl", "is-system-running", check=False).stdout == "running\n", 10)


def test_people_log_in_and_may_only_what_they_are_given(host: LabHost) -> None:
    assert host.ssh("id", "-un", user="expctl").stdout == "expctl\n"
    assert host.ssh("sudo", "-n", "id", user="expctl", check=False).returncode == 1
    host.sudoers("expctl ALL=(root) NOPASSWD: /usr/bin/id")
    assert host.ssh("sudo", "-n", "id", "-u", user="expctl").stdout == "0\n"
    assert host.ssh("sudo", "-n", "cat", "/etc/shadow", user="expctl", check=False).returncode == 1
    assert host.ssh("id", "-un", user="ops").stdout == "ops\n"
    assert host.run("id", "-un", user="vllm").stdout == "vllm\n"


def test_production_serves_and_holds_the_gpus(production_host: LabHost) -> None:
    host = production_host
    models = get(host.url(8000, "/v1/models")).json()
    assert models["data"][0]["id"] == "production"
    assert host.gpu_memory() == LOADED
    pid = host.show(PRODUCTION, "MainPID")
    assert [row[1] for row in query(host, "compute-apps", *HOLDER_FIELDS)] == [pid] * 8
    assert host.run("ps", "-o", "user=", "-p", pid).stdout.strip() == "vllm"
    assert "Application startup complete" in host.journal(PRODUCTION)
    host.run("systemctl", "stop", PRODUCTION)
    assert host.gpu_memory() == IDLE
    assert not host.is_serving()


def test_the_engine_shows_its_words_and_then_another_title(host: LabHost) -> None:
    host.sim(title_after_s=None)
    host.install_production(extra="--seed 7")
    shown = argv_of(host, host.show(PRODUCTION, "MainPID"))
    assert shown[0].endswith("python3")
    assert shown[1:4] == ["/opt/vllm/bin/vllm", "serve", "/srv/models/production"]
    assert shown[-2:] == ["--seed", "7"]
    host.sim(title_after_s=0.1)
    host.run("systemctl", "restart", PRODUCTION)
    pid = host.show(PRODUCTION, "MainPID")
    wait_for(lambda: argv_of(host, pid) == ["VLLM::APIServer"], 10)
    host.wait_serving()


def test_an_engines_faults_are_the_units_or_the_hosts(host: LabHost) -> None:
    host.sim(FAULT="oom_at_load")
    host.install_production(env={"EXPCTL_SIM_FAULT": ""})
    assert host.gpu_memory() == LOADED
    host.run("systemd-run", "-q", "--unit=expctl-1.service", "--setenv=CUDA_VISIBLE_DEVICES=", "/opt/vllm/bin/vllm", "serve", "m")
    wait_for(lambda: host.show("expctl-1.service", "ActiveState") == "failed", 10)
    assert "larger than the number of available GPUs (0)" in host.journal("expctl-1.service")
    host.run("systemctl", "stop", PRODUCTION)
    host.run("systemd-run", "-q", "--unit=expctl-2.service", "/opt/vllm/bin/vllm", "serve", "m")
    wait_for(lambda: host.show("expctl-2.service", "ActiveState") == "failed", 10)
    assert "torch.OutOfMemoryError" in host.journal("expctl-2.service")


def test_a_pulled_cable_is_silence(production_host: LabHost) -> None:
    host = production_host
    with socket.create_connection((host.address, 22), timeout=5) as open_before:
        assert open_before.recv(4) == b"SSH-"
        open_before.settimeout(0.3)
        with host.unplugged():
            with pytest.raises(subprocess.TimeoutExpired):
                host.ssh("true", timeout=1)
            with pytest.raises(TimeoutError):
                socket.create_connection((host.address, 22), timeout=1)
            open_before.sendall(b"SSH-2.0-test\r\n")
            with pytest.raises(TimeoutError):
                drain(open_before)
            assert host.active(PRODUCTION), "the host itself does not mind"
            assert host.our_address in subprocess.run(["ip", "-br", "address"], capture_output=True, text=True, check=True).stdout
        open_before.settimeout(10)
        assert open_before.recv(4096), "TCP has sent it again, and sshd goes on"
    assert host.ssh("true").returncode == 0
    assert get(host.url(8000, "/health")).status_code == 200


def drain(connection: socket.socket) -> None:
    """What had arrived, until there is nothing more (TimeoutError), or the end of the connection."""
    while connection.recv(4096):
        pass


def test_a_power_cut_says_no_goodbye_and_keeps_the_disk(production_host: LabHost) -> None:
    host = production_host
    host.write("/var/lib/kept", "kept")
    host.write("/run/lost", "lost")
    boot = host.read("/proc/sys/kernel/random/boot_id")
    with socket.create_connection((host.address, 22), timeout=5) as open_before:
        open_before.settimeout(0.5)
        host.power_cut()
        with pytest.raises(TimeoutError):
            drain(open_before)
        with pytest.raises(TimeoutError):
            socket.create_connection((host.address, 22), timeout=1)
        assert not host.up
        assert host.read("/var/lib/kept") == "kept"
        host.boot()
        open_before.sendall(b"SSH-2.0-test\r\n")
        open_before.settimeout(10)
        with pytest.raises(ConnectionResetError):  # who has booted has never heard of it
            drain(open_before)
    assert host.read("/proc/sys/kernel/random/boot_id") != boot
    assert host.read("/var/lib/kept") == "kept"
    assert not host.exists("/run/lost")
    host.wait_serving()  # it is enabled
    assert host.gpu_memory() == LOADED
    assert host.journal(PRODUCTION).count("Application startup complete") == 2, "the journal of both boots is there"


def test_a_switched_off_host_can_be_changed(production_host: LabHost) -> None:
    host = production_host
    host.power_off()
    assert not host.up
    assert "Application shutdown complete" in host.journal(PRODUCTION)
    host.run("systemctl", "disable", "-q", PRODUCTION)
    host.pull()
    host.boot()
    with pytest.raises(subprocess.TimeoutExpired):
        host.ssh("true", timeout=1)
    assert not host.active(PRODUCTION)
    host.plug()
    assert host.ssh("systemctl", "is-enabled", PRODUCTION, check=False).stdout == "disabled\n"


def test_a_host_that_reboots_by_itself(host: LabHost) -> None:
    before = host.read("/proc/sys/kernel/random/boot_id")
    host.pull()
    host.reboot()
    assert host.read("/proc/sys/kernel/random/boot_id") != before
    with pytest.raises(subprocess.TimeoutExpired):
        host.ssh("true", timeout=1)
    host.plug()
    assert host.ssh("hostname").stdout == "gpu0\n"


def test_two_hosts_know_nothing_of_each_other(new_host: NewHost) -> None:
    one, two = new_host("gpu0"), new_host("gpu1")
    one.install_production(gpus="0")
    two.install_production(gpus="1,2")
    assert one.gpu_memory() == [90004, *[4] * 7]
    assert two.gpu_memory() == [4, 90004, 90004, *[4] * 5]
    assert [host.ssh("hostname").stdout for host in (one, two)] == ["gpu0\n", "gpu1\n"]
    assert one.read("/etc/machine-id") != two.read("/etc/machine-id")
    pid = two.show(PRODUCTION, "MainPID")
    one.power_cut()
    assert two.show(PRODUCTION, "MainPID") == pid
    assert two.is_serving()
    assert two.ssh("true").returncode == 0
    with two.unplugged():
        one.boot()
        one.wait_serving()


def test_a_new_test_gets_a_new_host(new_host: NewHost) -> None:
    one = new_host("gpu0")
    one.write("/var/lib/mark", "")
    place = one.slot.folder
    one.remove()
    assert not place.exists()
    assert not Path(f"/sys/class/net/{one.slot.bridge}").exists()
    assert not one.slot.group.exists()
    assert not new_host("gpu0").exists("/var/lib/mark")


def test_a_failed_boot_leaves_nothing_that_runs(new_host: NewHost) -> None:
    host = new_host(boot=False, binds=[Path("/nonexistent/folder")])
    with pytest.raises(BootFailed, match="/nonexistent/folder"):
        host.boot()
    assert not host.up
    assert not [p for p in psutil.process_iter(["cmdline"]) if f"--machine={host.slot.machine}" in (p.info["cmdline"] or [])]


def test_nvidia_smi_answers_every_query_of_ours(host: LabHost) -> None:
    for fields in (*GPU_FIELDS, *STATE_FIELDS):
        rows = query(host, "gpu", *fields)
        assert [len(row) for row in rows] == [len(fields)] * 8
        assert not [value for row in rows for value in row if not value or value.startswith("[")]
    assert query(host, "compute-apps", *HOLDER_FIELDS) == []


def test_nvidia_smi_says_what_a_test_has_written(host: LabHost) -> None:
    host.write_gpus(GpuState(holders=[Foreign(4242, gpus=(1,), used_mib=700, name="train")], missing=(3,)))
    assert [row[0] for row in query(host, "gpu", "index", "uuid")] == list("0124567")
    assert [row[1:] for row in query(host, "compute-apps", *HOLDER_FIELDS)] == [["4242", "train", "700"]]
    host.write_gpus(GpuState(cells={0: {"memory.used": "[GPU is lost]"}}))
    assert query(host, "gpu", "index", "memory.used")[0] == ["0", "[GPU is lost]"]
    host.write_gpus(GpuState(status=9, output="Failed to initialize NVML: Driver/library version mismatch"))
    broken = host.run("nvidia-smi", "--query-gpu=index", "--format=csv", check=False)
    assert (broken.returncode, broken.stdout) == (9, "Failed to initialize NVML: Driver/library version mismatch\n")
    host.write_gpus(GpuState(hang=True))
    assert host.run("timeout", "1", "nvidia-smi", check=False).returncode == 124
    host.write_gpus()
    assert host.gpu_memory() == IDLE


def test_processes_of_others_hold_gpus(host: LabHost) -> None:
    pid = host.hold_gpus(gpus=(0, 1), used_mib=3000, name="notebook")
    assert host.gpu_memory() == [3004, 3004, *[4] * 6]
    assert host.run("ps", "-o", "user=", "-p", str(pid)).stdout.strip() == "ops"
    orphan = host.hold_gpus(gpus=(2,), user="vllm", name="VLLM::Worker_TP0", orphan=True)
    group = host.read(f"/proc/{orphan}/cgroup").strip().rpartition("/")[2]
    wait_for(lambda: host.show(group, "ActiveState") == "inactive", 10)
    assert host.gpu_memory()[2] == 5004, "its unit has ended, and it lives"
    host.run("kill", "-KILL", str(pid), str(orphan))
    wait_for(lambda: host.gpu_memory() == IDLE, 5)


def rights(text: str) -> int:
    """The effective capabilities in a status of /proc."""
    [found] = re.findall(r"^CapEff:\s+(\w+)$", text, re.MULTILINE)
    return int(found, 16)


def test_commands_inside_have_no_rights_over_this_machine(host: LabHost) -> None:
    ours = Path("/proc/self/status").read_text()
    clock, boot = 1 << 25, 1 << 22
    assert rights(ours) & clock
    for _ in ("on", "off"):
        inside = rights(host.run("sh", "-c", MOUNTED + "cat /proc/self/status").stdout)
        assert inside
        assert not inside & clock
        assert host.run("sh", "-c", MOUNTED + f"kill -0 {os.getpid()}", check=False).returncode == 1
        assert not host.run("cat", "/sys/class/net/eth0/address", check=False).stdout
        host.power_off()
    assert not inside & boot, "a chroot is no namespace: reboot would be this machine's"


def test_sshd_goes_and_comes_back(host: LabHost) -> None:
    host.stop_sshd()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host.address, 22), timeout=5)
    host.restart_sshd()
    assert host.ssh("true").returncode == 0


def test_connections_are_dropped(host: LabHost) -> None:
    argv = ["ssh", "-F", str(host.ssh_config), host.name, "echo here; exec cat"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"here\n"
        host.restart_sshd()
        assert session.poll() is None, "a restart of sshd ends no session"
        host.drop_connections()
        assert session.wait(10) == 255
    assert host.ssh("true").returncode == 0


def test_a_changed_host_key_is_not_trusted(host: LabHost) -> None:
    host.change_host_key()
    refused = host.ssh("true", check=False)
    assert refused.returncode == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in refused.stderr
    host.change_host_key(trust=True)
    assert host.ssh("true").returncode == 0


def test_a_disk_is_full_for_a_while(new_host: NewHost) -> None:
    host = new_host(disk_mib=64)
    for place, folder in (("/", "/var/lib"), ("/run", "/run")):
        with host.full_disk(place):
            full = host.run("sh", "-c", f"head -c 100000 /dev/zero >{folder}/new", check=False)
            assert "No space left on device" in full.stderr
        host.write(f"{folder}/new", "x" * 100_000)
    host.power_cut()
    host.boot()
    assert len(host.read("/var/lib/new")) == 100_000


def test_a_units_drop_ins_count(host: LabHost) -> None:
    host.put_unit("one.service", "[Service]\nExecStart=sleep infinity\n", {"10-name.conf": "[Unit]\nDescription=from the drop-in\n"})
    assert host.show("one.service", "Description") == "from the drop-in"
    assert not host.active("one.service")
    lines = host.run("journalctl", "-o", "json", "-n", "1").stdout
    assert json.loads(lines)["_HOSTNAME"] == "gpu0"


def test_folders_are_seen_read_only(new_host: NewHost, lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    host = new_host(binds=[tmp_path])
    assert host.read(str(tmp_path / "file")) == "text"
    assert host.run("touch", str(tmp_path / "new"), check=False).returncode == 1
    assert not (lab.base / str(tmp_path)[1:]).exists(), "the root that all hosts share is never written"
