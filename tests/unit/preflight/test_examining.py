"""One experiment looked at on a host: what is asked, what is believed, and what is said where nobody could look."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.domain.reasons import Reason
from service.domain.spec import Spec
from workers.engines.base import HostDefaults
from workers.engines.registry import make_engine
from workers.hosts.base import PortOwner, UnitSource
from workers.hosts.fake import FakeHost
from workers.preflight.examine import Preflight, static
from workers.preflight.findings import Report

HELP = (Path(__file__).parents[2] / "data" / "vllm-0.32" / "help.txt").read_text()
VLLM = "/opt/vllm/bin/vllm"
GOOD_HELP = {"status": 0, "text": HELP, "error": ""}


class Machine:
    """What looks find; every question is kept."""

    def __init__(self, **changes: Any) -> None:
        self.program = {"kind": "file", "readable": True, "executable": True, "path": VLLM, "mark": "1", "dists": ["vllm-0.32.0.dist-info"]}
        self.model = {"kind": "file", "readable": True}
        self.help, self.user = GOOD_HELP, "vllm"
        self.asked: list[Mapping[str, Any]] = []
        self.__dict__.update(changes)

    def look(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(question)
        if "help_of" in question:
            return {"help": self.help}
        return {
            "user": self.user,
            "programs": dict.fromkeys(question["programs"], self.program),
            "models": dict.fromkeys(question["models"], self.model),
            "paths": {path: {"kind": "file", "readable": True} for path in question["paths"]},
            "disks": {path: {"free_mib": 90_000} for path in question["disks"]},
        }

    @property
    def helps(self) -> list[list[str]]:
        return [question["help_of"] for question in self.asked if "help_of" in question]


def examined(machine: Machine | None, tmp_path: Path | None = None, host: FakeHost | None = None, **engine: Any) -> Report:
    spec = Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "/m", **engine}})
    at = host or FakeHost()
    at.looks = machine.look if machine else None
    at.run_as = "vllm"
    made = make_engine(spec, HostDefaults(8001, {"vllm": VLLM}), {"KEY": "abcdef123456"})
    return Preflight(at, ("p.service",), frozenset({VLLM}), tmp_path).of(spec, made)


def said(report: Report, verdict: str) -> list[str]:
    return [f"{one.about}: {one.text}" for one in report.findings if one.verdict == verdict]


def test_a_bad_flag_is_found_by_the_program_s_own_help_and_that_is_asked_once(tmp_path: Path) -> None:
    machine = Machine()
    for _ in range(2):
        report = examined(machine, tmp_path, args={"max-model-length": 1})
        assert report.refusal is not None
        assert (report.refusal.reason, report.refusal.about) == (Reason.BAD_ARGUMENTS, "arguments")
    assert machine.helps == [[VLLM, "serve", "--help=all"]]
    machine.program = machine.program | {"mark": "2"}
    examined(machine, tmp_path)
    assert len(machine.helps) == 2, "another version is asked for itself"


def test_a_help_that_takes_too_long_is_not_kept_and_says_so(tmp_path: Path) -> None:
    machine = Machine(help={"why": "it did not answer within 90 s"})
    for _ in range(2):
        report = examined(machine, tmp_path, args={"max-model-length": 1})
        assert report.refusal is None
        assert any("did not answer within 90 s" in one for one in said(report, "unchecked"))
    assert len(machine.helps) == 2


def test_a_version_that_does_not_know_the_long_help_is_asked_for_the_short_one() -> None:
    machine = Machine(help={"status": 2, "text": "", "error": "usage\nvllm: error: ignored explicit argument 'all'"})
    report = examined(machine)
    assert [words[-1] for words in machine.helps] == ["--help=all", "--help"]
    assert any("ignored explicit argument" in one for one in said(report, "unchecked"))


def test_a_host_that_nobody_can_look_at_refuses_nothing_and_calls_nothing_good() -> None:
    report = examined(None)
    assert report.refusal is None
    assert any("nobody can look here" in one for one in said(report, "unchecked"))
    assert not any(one.startswith(("program", "model", "arguments")) for one in said(report, "good"))


def test_a_program_that_an_experiment_brings_along_is_run_by_its_own_user_only() -> None:
    machine = Machine(user="admin", program=Machine().program | {"path": "/srv/own"})
    report = examined(machine, executable="/srv/own")
    assert machine.helps == []
    assert any("only vllm runs what an experiment brings along" in one for one in said(report, "unchecked"))
    examined(machine)
    assert machine.helps == [[VLLM, "serve", "--help=all"]], "what the host's settings name is the admins' own"
    as_itself = Machine(user="vllm")
    examined(as_itself, executable="/srv/own")
    assert as_itself.helps == [["/srv/own", "serve", "--help=all"]]


def test_what_another_user_may_not_see_is_left_open() -> None:
    report = examined(Machine(user="admin", model={"kind": "hidden", "why": "Permission denied"}))
    assert report.refusal is None
    assert any("vllm, who runs the engine, may see it otherwise than admin" in one for one in said(report, "unchecked"))
    assert examined(Machine(model={"kind": "hidden", "why": "Permission denied"})).refusal is not None


def test_a_fork_whose_unit_has_files_of_its_own_is_not_judged_by_ours() -> None:
    host = FakeHost()
    host.sources["u.service"] = UnitSource("u.service", (("/u", "[Service]\nRootDirectory=/image\nExecStart=/x\n"),), "s", {"User": "vllm"})
    spec = Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "/m", "from_unit": "u.service"}})
    plain = Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "/m"}})
    machine = Machine(model={"kind": "missing"})
    host.looks = machine.look
    engine = make_engine(plain, HostDefaults(8001, {"vllm": VLLM}), {})
    report = Preflight(host).of(spec, engine)
    assert report.refusal is None
    assert any("u.service has RootDirectory= set" in one for one in said(report, "unchecked"))


@pytest.mark.parametrize(
    ("owner", "verdict"),
    [
        (None, "good"),
        (PortOwner(8001, 1, "vllm", "expctl-7-y", "expctl-7-y.service"), "good"),
        (PortOwner(8001, 1, "vllm", None, "p.service"), "good"),
        (PortOwner(8001, 1, "nginx", None, "nginx.service"), "wrong"),
        (PortOwner(8001, 1, "python", None), "doubtful"),
        (PortOwner(8001, None, None, None), "doubtful"),
    ],
)
def test_the_port_is_free_or_ours_or_will_be(owner: PortOwner | None, verdict: str) -> None:
    host = FakeHost()
    if owner is not None:
        host.port_owners[8001] = owner
    report = examined(Machine(), host=host)
    assert [str(one.verdict) for one in report.findings if one.about == "port"] == [verdict]


def test_a_key_that_cannot_be_resolved_is_found_and_one_that_can_is_shown_nowhere() -> None:
    missing = examined(Machine(), api_key="env:NOT_SET")
    assert missing.refusal is not None
    assert missing.refusal.reason == Reason.BAD_ARGUMENTS
    found = examined(Machine(help={"status": 2, "text": "", "error": "the key abcdef123456 is wrong"}), api_key="env:KEY")
    assert "abcdef123456" not in str(found.as_json())


def test_a_command_is_looked_at_as_far_as_it_can_be() -> None:
    spec = Spec.model_validate({"name": "x", "engine": {"kind": "command", "run": ["/opt/train", "--help"], "cwd": "/srv"}})
    host = FakeHost()
    machine = Machine(program={"kind": "missing"})
    host.looks = machine.look
    report = Preflight(host).of(spec, make_engine(spec, HostDefaults(8001, {}), {}))
    assert report.refusal is not None
    assert report.refusal.reason == Reason.EXEC_FAILED
    assert machine.helps == []
    assert not any(one.about == "port" for one in report.findings)


@pytest.mark.parametrize("from_unit", [None, "u.service"])
def test_without_the_host_the_rules_are_all_that_is_said(from_unit: str | None) -> None:
    speculative = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 5, "prompt_lookup_max": 3}
    engine = {"kind": "vllm", "model": "m", "speculative": speculative} | ({"from_unit": from_unit} if from_unit else {})
    spec = Spec.model_validate({"name": "x", "engine": engine})
    made = None if from_unit else make_engine(spec, HostDefaults(8001, {}), {})
    assert [one.reason for one in static(spec, made).findings] == [Reason.BAD_ARGUMENTS]
