from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.unit.hosts.helper import systemd_words
from tests.unit.hosts.helper.box import CLAIM, PARKED, PRODUCTION, UNIT, Box, Inside
from workers.hosts.helper.places import Caller

RENDER = {"claim": CLAIM, "unit": UNIT, "argv": ["/bin/echo", "a b"]}
FORK = {"claim": CLAIM, "unit": UNIT, "fork": {"from_unit": PARKED, "words": ["/opt/venv/bin/vllm", "serve", "%n", "$A"]}}


def edit(inside: Inside, old: str, new: str) -> None:
    inside.box.source(PARKED, PRODUCTION.replace(old, new))


def text_of(box: Box) -> str:
    return (box.root / f"run/systemd/system/{UNIT}").read_text()


def test_a_rendered_unit_is_written_and_loaded(box: Box) -> None:
    answer = box.good("write-unit", {**RENDER, "env": {"A": 'x"y'}, "cwd": "/srv", "conflicts": [PARKED, "expctl-3.service"]})
    text = text_of(box)
    assert answer["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert answer["user"] == "nobody"
    assert systemd_words.command_line(text) == ["/bin/echo", "a b"]
    assert f"EnvironmentFile=/run/expctl-host/{UNIT}.env\n" in text
    assert f"Conflicts={PARKED} expctl-3.service\n" in text
    assert (box.root / f"run/expctl-host/{UNIT}.env").read_text() == 'A="x\\"y"\n'
    assert answer["status"]["show"]["LoadState"] == "loaded"
    assert answer["status"]["show"]["ActiveState"] == "inactive"
    assert box.calls("daemon-reload") == [[]]


def test_without_variables_no_old_ones_are_left(box: Box) -> None:
    box.good("write-unit", {**RENDER, "env": {"A": "1"}})
    box.good("write-unit", RENDER)
    assert "EnvironmentFile" not in text_of(box)
    assert not (box.root / f"run/expctl-host/{UNIT}.env").exists()


def test_a_fork_is_a_copy_and_the_original_is_not_touched(box: Box) -> None:
    before = (box.root / f"etc/systemd/system/{PARKED}").stat()
    box.write(f"etc/systemd/system/{PARKED}.d/10.conf", "[Service]\nEnvironment=WHO=%N\n")
    answer = box.good("write-unit", FORK)
    text = text_of(box)
    assert 'ExecStart=\nExecStart="/opt/venv/bin/vllm" "serve" "vllm-kimi.service" "$A"\n' in text
    assert "Environment=WHO=vllm-kimi\n" in text
    assert text.index("Environment=WHO") < text.index("ExecStart=")
    assert "Install" not in text
    assert "Restart=always" not in text
    assert answer["user"] == "nobody"
    after = (box.root / f"etc/systemd/system/{PARKED}").stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_source_shows_the_files_and_a_change_of_any_changes_the_hash(box: Box) -> None:
    first = box.good("source", {"unit": PARKED})
    assert first["files"] == [[f"/etc/systemd/system/{PARKED}", PRODUCTION]]
    assert (first["live_argv"], first["variables_from"]) == ([], "unit")
    box.write(f"etc/systemd/system/{PARKED}.d/10.conf", "[Service]\nNice=1\n")
    box.systemctl("daemon-reload")
    second = box.good("source", {"unit": PARKED})
    assert [path for path, _ in second["files"]] == [f"/etc/systemd/system/{PARKED}", f"/etc/systemd/system/{PARKED}.d/10.conf"]
    assert second["sha256"] != first["sha256"]
    stale = {**FORK, "fork": {**FORK["fork"], "sha256": first["sha256"]}}
    assert box.bad("write-unit", stale)["reason"] == "stale_unit_definition"
    box.good("write-unit", {**FORK, "fork": {**FORK["fork"], "sha256": second["sha256"]}})


def test_source_of_a_running_unit_has_its_arguments_and_variables(box: Box) -> None:
    box.write("etc/kimi.env", 'TOKEN="a b"\n')
    box.source(PARKED, PRODUCTION.replace("Restart", "EnvironmentFile=/etc/kimi.env\nRestart"))
    box.systemctl("start", PARKED)
    answer = box.good("source", {"unit": PARKED})
    assert answer["live_argv"][:3] == ["/opt/venv/bin/vllm", "serve", "/models/kimi"]
    assert (answer["variables"], answer["variables_from"]) == ({"TOKEN": "a b"}, "process")


def test_source_of_a_unit_that_does_not_run_has_the_variables_of_its_files(box: Box) -> None:
    box.write("etc/kimi.env", 'TOKEN="a b"\n')
    box.systemctl("daemon-reload")
    box.set_unit(PARKED, Environment='A=1 "B=x y"', EnvironmentFiles="/etc/kimi.env (ignore_errors=no)")
    answer = box.good("source", {"unit": PARKED})
    assert (answer["variables"], answer["variables_from"]) == ({"A": "1", "B": "x y", "TOKEN": "a b"}, "unit")


def test_a_source_whose_edit_systemd_has_not_read_is_not_forked(box: Box) -> None:
    box.systemctl("daemon-reload")
    box.source(PARKED, PRODUCTION + "# edited\n")
    assert box.bad("write-unit", FORK)["reason"] == "stale_unit_definition"


def test_a_source_that_others_may_write_is_not_forked(box: Box) -> None:
    (box.root / f"etc/systemd/system/{PARKED}").chmod(0o666)
    assert box.bad("write-unit", FORK)["reason"] == "permission_denied"
    assert box.bad("source", {"unit": PARKED})["reason"] == "permission_denied"


def test_a_source_outside_of_systemds_folders_is_not_read(box: Box) -> None:
    box.systemctl("daemon-reload")
    for path in ("/home/x/vllm-kimi.service", "/etc/systemd/../shadow"):
        box.set_unit(PARKED, FragmentPath=path)
        assert box.bad("source", {"unit": PARKED})["reason"] == "permission_denied"


def test_a_source_that_is_not_there(box: Box) -> None:
    (box.root / f"etc/systemd/system/{PARKED}").unlink()
    assert box.bad("source", {"unit": PARKED})["reason"] == "unit_syntax"


@pytest.mark.parametrize("user", [None, "nobody"])
def test_users_that_are_allowed(inside: Inside, user: str | None) -> None:
    assert inside.good("write-unit", {**RENDER, "user": user})["user"] == "nobody"


@pytest.mark.parametrize("user", ["root", "daemon", "0", "no body", "nobody%", "no-such-user"])
@pytest.mark.parametrize("request_", [RENDER, FORK])
def test_users_that_are_not(inside: Inside, request_: dict[str, Any], user: str) -> None:
    assert inside.bad("write-unit", {**request_, "user": user})["reason"] == "permission_denied"


def test_nobody_named_and_nobody_allowed_is_root(inside: Inside) -> None:
    inside.box.configure(run_as=[])
    assert inside.bad("write-unit", RENDER)["reason"] == "permission_denied"
    inside.box.configure(run_as=[], allow_root=True)
    assert inside.good("write-unit", RENDER)["user"] == "root"
    assert "User=" not in text_of(inside.box)


def test_root_itself_is_not_bound_by_the_limits_on_users_but_by_those_on_names(inside: Inside) -> None:
    inside.caller = Caller(0, "root", root=True)
    assert inside.good("write-unit", {**RENDER, "user": "root"})["user"] == "root"
    assert inside.bad("write-unit", {**RENDER, "unit": "sshd.service"})["reason"] == "permission_denied"
    assert inside.bad("write-unit", {**RENDER, "user": "no-such-user"})["reason"] == "unit_syntax"


@pytest.mark.parametrize("line", ["", "User=root", "User=0", "User=daemon"])
def test_a_source_that_runs_as_somebody_else_is_not_forked(inside: Inside, line: str) -> None:
    edit(inside, "User=nobody", line)
    assert inside.bad("write-unit", FORK)["reason"] == "permission_denied"


def test_a_source_that_runs_as_root_is_not_forked_under_another_user_either(inside: Inside) -> None:
    edit(inside, "User=nobody", "")
    assert inside.bad("write-unit", {**FORK, "user": "nobody"})["reason"] == "permission_denied"
    inside.box.configure(allow_root=True)
    assert inside.good("write-unit", {**FORK, "user": "nobody"})["user"] == "nobody"
    assert inside.good("write-unit", FORK)["user"] == "root"


@pytest.mark.parametrize(
    "line", ["ExecStartPre=+/bin/sync", "ExecStopPost=-!/bin/sync", "PermissionsStartOnly=yes\nExecStartPre=/bin/sync", "PAMName=login"]
)
def test_a_part_that_runs_as_root_must_not_see_changes(inside: Inside, line: str) -> None:
    inside.box.configure(run_as=["nobody", "daemon"])
    edit(inside, "Restart=always", line)
    for changed in ({"env": {"LD_PRELOAD": "/srv/x.so"}}, {"env": {"A": "1"}}, {"cwd": "/srv"}, {"user": "daemon"}):
        assert inside.bad("write-unit", {**FORK, **changed})["reason"] == "permission_denied"
    inside.good("write-unit", FORK)
    inside.good("write-unit", {**FORK, "user": "nobody"})


@pytest.mark.parametrize("prefix", ["+", "!", "!!", "|", "-+", "@", ":", "-"])
def test_prefixes_that_the_original_has_not(inside: Inside, prefix: str) -> None:
    words = {**FORK, "fork": {"from_unit": PARKED, "words": [f"{prefix}/bin/sh"]}}
    assert inside.bad("write-unit", words)["reason"] == "permission_denied"


def test_prefixes_that_the_original_has(inside: Inside) -> None:
    edit(inside, "ExecStart=/", "ExecStart=-:+/")
    inside.good("write-unit", {**FORK, "fork": {"from_unit": PARKED, "words": [":-/bin/sh"]}})
    assert inside.bad("write-unit", {**FORK, "fork": {"from_unit": PARKED, "words": ["+/bin/sh"]}})["reason"] == "permission_denied"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Type=dbus\nBusName=a.b", "unit_syntax"),
        ("Type=oneshot", "unit_syntax"),
        ("DynamicUser=yes", "unit_syntax"),
        ("ExecStart=/bin/another", "unit_syntax"),
        ("AmbientCapabilities=CAP_SYS_ADMIN", "permission_denied"),
        ("AmbientCapabilities=~CAP_SYS_NICE", "permission_denied"),
        (".include /etc/x", "unit_syntax"),
    ],
)
def test_sources_that_cannot_be_forked(inside: Inside, line: str, reason: str) -> None:
    edit(inside, "Restart=always", line)
    assert inside.bad("write-unit", FORK)["reason"] == reason


def test_harmless_capabilities_are_kept(inside: Inside) -> None:
    edit(inside, "Restart=always", "AmbientCapabilities=CAP_IPC_LOCK cap_sys_nice")
    inside.good("write-unit", FORK)


def test_directories_are_not_given_to_another_user(inside: Inside) -> None:
    inside.box.configure(run_as=["nobody", "daemon"])
    edit(inside, "Restart=always", "CacheDirectory=models")
    assert inside.bad("write-unit", {**FORK, "user": "daemon"})["reason"] == "unit_syntax"
    inside.good("write-unit", FORK)


def test_a_variable_that_the_original_unsets_is_refused(inside: Inside) -> None:
    edit(inside, "Restart=always", 'UnsetEnvironment="A=1" B')
    for name in ("A", "B"):
        assert inside.bad("write-unit", {**FORK, "env": {name: "2"}})["reason"] == "unit_syntax"
    inside.good("write-unit", {**FORK, "env": {"C": "2"}})


@pytest.mark.parametrize("name", ["A B", "A=B", "1A", "", "A\nB", "É"])
def test_names_of_variables_that_are_none(inside: Inside, name: str) -> None:
    assert inside.bad("write-unit", {**RENDER, "env": {name: "1"}})["reason"] == "permission_denied"


@pytest.mark.parametrize("unit", ["sshd.service", UNIT, "*.service", "a b"])
def test_a_conflict_stops_only_what_may_be_stopped(inside: Inside, unit: str) -> None:
    assert inside.bad("write-unit", {**RENDER, "conflicts": [unit]})["reason"] == "permission_denied"


def test_only_listed_units_are_forked(inside: Inside) -> None:
    inside.box.source("sshd.service", PRODUCTION)
    other = {**FORK, "fork": {"from_unit": "sshd.service", "words": ["/bin/sh"]}}
    assert inside.bad("write-unit", other)["reason"] == "permission_denied"
    inside.box.configure(fork=["sshd.service"])
    inside.good("write-unit", other)
    assert inside.good("source", {"unit": "sshd.service"})["unit"] == "sshd.service"


def test_a_file_that_stands_before_ours_is_found(inside: Inside) -> None:
    inside.box.source(UNIT, PRODUCTION)
    answer = inside.bad("write-unit", RENDER)
    assert (answer["reason"], "stands before" in answer["message"]) == ("unit_syntax", True)


def test_a_drop_in_that_restarts_is_found(inside: Inside) -> None:
    inside.box.write(f"etc/systemd/system/{UNIT}.d/10.conf", "[Service]\nRestart=always\n")
    answer = inside.bad("write-unit", RENDER)
    assert (answer["reason"], "Restart=always" in answer["message"]) == ("unit_syntax", True)


def test_what_systemd_does_not_load_is_refused(inside: Inside) -> None:
    inside.box.behave(UNIT, start="bad-setting")
    assert inside.bad("write-unit", RENDER)["reason"] == "unit_syntax"


def test_a_running_unit_is_not_changed_under_its_feet(box: Box) -> None:
    box.good("write-unit", {**RENDER, "env": {"A": "1"}})
    box.good("start", {"claim": CLAIM, "unit": UNIT})
    before = text_of(box)
    for changed in ({"argv": ["/bin/other"]}, {"env": {"A": "2"}}, {"env": {}}):
        assert box.bad("write-unit", {**RENDER, "env": {"A": "1"}, **changed})["reason"] == "stale_unit_definition"
    assert text_of(box) == before
    assert box.good("write-unit", {**RENDER, "env": {"A": "1"}})["status"]["show"]["ActiveState"] == "active"


def test_a_link_in_the_place_of_the_unit_is_replaced_not_followed(box: Box) -> None:
    victim = box.write("etc/victim", "mine")
    (box.root / f"run/systemd/system/{UNIT}").symlink_to(victim)
    box.good("write-unit", RENDER)
    assert victim.read_text() == "mine"
    assert not (box.root / f"run/systemd/system/{UNIT}").is_symlink()


def test_removing_takes_the_secrets_along(box: Box) -> None:
    box.good("write-unit", {**RENDER, "env": {"A": "1"}})
    box.good("start", {"claim": CLAIM, "unit": UNIT})
    assert box.bad("remove-unit", {"claim": CLAIM, "unit": UNIT})["reason"] == "stale_unit_definition"
    box.good("stop", {"claim": CLAIM, "unit": UNIT})
    assert box.good("remove-unit", {"claim": CLAIM, "unit": UNIT}) == {"removed": True}
    assert list((box.root / "run/expctl-host").iterdir()) == []
    assert box.good("remove-unit", {"claim": CLAIM, "unit": UNIT}) == {"removed": False}
    assert box.good("units") == {"units": [{**box.good("status", {"unit": UNIT})}]}
