"""What the helper says of a unit's way back: touched since its start, gone, stopped with it."""

from __future__ import annotations

from tests.unit.hosts.helper.box import PARKED, PRODUCTION, Box, Inside

FILE = f"/etc/systemd/system/{PARKED}"
DROP_INS = FILE + ".d"
PROGRAM = "/opt/venv/bin/vllm"


def running(box: Box, started_s: float) -> None:
    """Production runs since then, by the clock that the helper is given; its files are as old as the test."""
    box.write(PROGRAM[1:], "")
    box.systemctl("start", PARKED)
    box.set_unit(PARKED, ExecMainStartTimestampMonotonic=str(int(started_s * 1e6)))
    box.set_unit(PARKED, ExecStart=f"{{ path={PROGRAM} ; argv[]={PROGRAM} serve ; ignore_errors=no }}")


def test_what_was_touched_after_the_start(inside: Inside) -> None:
    box = inside.box
    running(box, 1000.0)
    age_s = inside.clock.monotonic() - 1000.0
    made = (box.root / FILE[1:]).stat().st_ctime
    inside.clock.now = made + age_s - 60  # it was started a minute before its file was made
    assert inside.good("source", {"unit": PARKED})["changed"] == [FILE]
    inside.clock.now = made + age_s + 60
    assert inside.good("source", {"unit": PARKED})["changed"] == []


def test_files_around_it_count_too(inside: Inside) -> None:
    box = inside.box
    box.write("etc/kimi.env", "A=1\n")
    (box.root / DROP_INS[1:]).mkdir()
    running(box, 1000.0)
    box.set_unit(PARKED, EnvironmentFiles="/etc/kimi.env (ignore_errors=no)")
    inside.clock.now = 1e6  # whatever is here is younger
    assert inside.good("source", {"unit": PARKED})["changed"] == [FILE, "/etc/kimi.env", DROP_INS]


def test_nothing_is_said_of_a_unit_that_does_not_run(inside: Inside) -> None:
    inside.box.systemctl("daemon-reload")
    inside.box.set_unit(PARKED, EnvironmentFiles="/etc/none (ignore_errors=no)")
    answer = inside.good("source", {"unit": PARKED})
    assert (answer["changed"], answer["missing"], answer["taken_along"]) == ([], [], [])


def test_what_is_gone(inside: Inside) -> None:
    box = inside.box
    running(box, 1000.0)
    box.set_unit(PARKED, EnvironmentFiles="/etc/none (ignore_errors=no)\n/etc/any (ignore_errors=yes)\n/etc/x/*.env (ignore_errors=no)")
    assert inside.good("source", {"unit": PARKED})["missing"] == ["/etc/none"]
    (box.root / PROGRAM[1:]).unlink()
    box.set_unit(PARKED, EnvironmentFiles="")
    assert inside.good("source", {"unit": PARKED})["missing"] == [PROGRAM]
    pid = box.units()[PARKED]["MainPID"]
    box.write(f"proc/{pid}/root{PROGRAM}", "")  # it is there for the unit alone
    assert inside.good("source", {"unit": PARKED})["missing"] == []


def test_variables_that_are_not_all_known(inside: Inside) -> None:
    box = inside.box
    running(box, 1000.0)
    secret = box.write("etc/kimi.env", "A=1\n")
    for files, known in (
        ("/etc/kimi.env (ignore_errors=no)", {"A": "1"}),
        ("/etc/none (ignore_errors=yes)", {}),
        ("/etc/x/*.env (ignore_errors=yes)", None),
    ):
        box.set_unit(PARKED, EnvironmentFiles=files)
        assert inside.good("source", {"unit": PARKED})["written_variables"] == known
    secret.chmod(0o666)
    box.set_unit(PARKED, EnvironmentFiles="/etc/kimi.env (ignore_errors=no)")
    assert inside.good("source", {"unit": PARKED})["written_variables"] is None


def test_what_is_stopped_with_it(inside: Inside) -> None:
    box = inside.box
    for name in ("gateway", "metrics", "asleep", "wanted"):
        box.source(f"{name}.service", PRODUCTION)
    running(box, 1000.0)
    for name in ("gateway", "metrics", "wanted"):
        box.systemctl("start", f"{name}.service")
    box.set_unit(PARKED, RequiredBy="gateway.service multi-user.target", ConsistsOf="metrics.service asleep.service wanted.service")
    box.set_unit(PARKED, Wants="wanted.service")
    assert inside.good("source", {"unit": PARKED})["taken_along"] == ["gateway.service", "metrics.service"]
