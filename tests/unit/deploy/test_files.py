"""What is shipped for running it: the compose file, the image and the units of systemd. Read, not run; see the acceptance test for that."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from expctl.main import VERBS
from service.settings import Settings
from tests.composefile import COMPOSE, ROOT, Unset, filled_in, read, variables

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
OURS = ("migrate", "api", "steward", "worker")
GIVEN = {
    "POSTGRES_PASSWORD": "p", "REDIS_PASSWORD": "r", "EXPCTL_BASE_URL": "https://e", "EXPCTL_HOST": "gpu-1", "EXPCTL_SSH_DIR": "/ssh",
}  # fmt: skip
KNOWN = {f"EXPCTL_{name}".upper() for name in Settings.model_fields} | {"EXPCTL_SSH_CONFIG", "EXPCTL_KNOWN_HOSTS"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = read()["services"]
    return found


def test_the_compose_file_is_one_by_the_specifications_schema() -> None:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_nothing_secret_has_a_default_and_each_variable_says_what_it_is() -> None:
    found = variables()
    assert found.keys() >= GIVEN.keys()
    assert {name for name, what in found.items() if not what.startswith("?set it in .env; ")} == {
        "EXPCTL_NOTIFY_ALLOW",
        "EXPCTL_ENDPOINT_ALLOW",
    }
    for missing in GIVEN:
        with pytest.raises(Unset, match=r"set it in \.env; \w+"):
            filled_in(read(), {name: value for name, value in GIVEN.items() if name != missing})


@pytest.mark.parametrize("name", OURS)
def test_our_containers_may_do_nothing_that_they_need_not(services: dict[str, Any], name: str) -> None:
    one = services[name]
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["command"][0] in {verb for group in VERBS.values() for verb in group}
    assert {key for key in one["environment"] if key.startswith("EXPCTL_")} <= KNOWN
    assert not one.get("privileged")
    assert not one.get("network_mode")


def test_images_have_versions_and_only_the_api_is_published(services: dict[str, Any]) -> None:
    for name, one in services.items():
        assert re.fullmatch(r"[a-z]+:\d+\.\d+(\.\d+)?(-[a-z]+)?", one["image"]), name
    assert {name: one["ports"] for name, one in services.items() if "ports" in one} == {"api": ["127.0.0.1:8700:8700"]}
    assert services["postgres"]["networks"] == services["redis"]["networks"] == ["inside"]
    assert read()["networks"]["inside"] == {"internal": True}


def test_nothing_starts_before_what_it_needs(services: dict[str, Any]) -> None:
    needs = {"migrate": "service_completed_successfully", "postgres": "service_healthy", "redis": "service_healthy"}
    for name in ("api", "steward", "worker"):
        assert {on: how["condition"] for on, how in services[name]["depends_on"].items()} == needs
        assert services[name]["restart"] == "unless-stopped"
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    for name in ("postgres", "redis", "api"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"


def test_redis_keeps_messages_over_a_restart_and_drops_none_for_room(services: dict[str, Any]) -> None:
    words = services["redis"]["command"]
    assert words[words.index("--appendonly") + 1] == "yes"
    assert words[words.index("--maxmemory-policy") + 1] == "noeviction"


def test_whoever_has_state_keeps_it_in_a_volume(services: dict[str, Any]) -> None:
    named = {name: one["volumes"][0].partition(":")[0] for name, one in services.items() if "volumes" in one}
    assert named == {"postgres": "postgres", "redis": "redis", "worker": "worker"}
    assert read()["volumes"].keys() == set(named.values())


def test_the_image_is_not_run_by_root_and_holds_no_more_than_is_needed() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim", base) for base in bases)
    last = lines[[number for number, line in enumerate(lines) if line.startswith("FROM ")][-1] :]
    assert "USER expctl" in last
    assert any(line.startswith("HEALTHCHECK ") for line in last)
    copied = [line.split()[1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    admitted = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert set(admitted) == {*copied, "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in admitted)


def directives(unit: Path) -> dict[str, dict[str, str]]:
    """Section -> directive -> its last value."""
    parser = configparser.RawConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return {name: dict(parser[name]) for name in parser.sections()}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_ends_soon_comes_back_always_and_is_no_root(unit: Path) -> None:
    service = directives(unit)["Service"]
    verb = service["ExecStart"].split()[1]
    assert verb in {verb for group in VERBS.values() for verb in group}
    assert (service["Restart"], service["User"], service["NoNewPrivileges"]) == ("always", "expctl", "yes")
    assert 8 < int(service["TimeoutStopSec"]) <= 15
    assert (service["ProtectSystem"], service["CapabilityBoundingSet"]) == ("strict", "")
    assert directives(unit)["Unit"]["StartLimitIntervalSec"] == "0", "a database that is away for an hour must not end it"
    assert "PASSWORD" not in unit.read_text()


def test_a_worker_that_is_stopped_leaves_engines_alone() -> None:
    (worker,) = [unit for unit in UNITS if "worker@" in unit.name]
    assert directives(worker)["Service"]["KillMode"] == "process"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_can_read_them(tmp_path: Path) -> None:
    for unit in UNITS:
        # Neither the program nor its user is on this machine.
        text = unit.read_text().replace("/opt/expctl/bin/expctl", "/bin/true").replace("=expctl\n", "=root\n")
        (tmp_path / unit.name).write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / unit.name) for unit in UNITS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
