"""Unit files as systemd reads them, and what is wrong in them."""

from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from workers.execline import BadLine
from workers.hosts.unitcheck import UnitReport, examine
from workers.hosts.unitfile import read_unit

UNIT = """\
# a comment
[Unit]
Description=vLLM
[Service]
Type = simple
Environment=A=1 "B=two words" C=%n
Environment=A=3
ExecStart=/opt/vllm serve m \\
# a comment in between
    ; and another \\
  --port 8000
Restart=always
[Install]
WantedBy=multi-user.target
"""


def check(text: str, **more: str) -> UnitReport:
    return examine([("x.service", "[Service]\n" + text)], variables=more)


def codes(report: UnitReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_sections_continuations_and_comments() -> None:
    unit = read_unit([("x.service", UNIT)])
    [start] = unit.every("ExecStart")
    assert start.value.split() == ["/opt/vllm", "serve", "m", "--port", "8000"]
    assert (start.line, unit.last("Type"), unit.last("Restart"), unit.last("WantedBy", "Install")) == (
        8,
        "simple",
        "always",
        "multi-user.target",
    )
    assert unit.environment({"n": "x.service"}) == {"A": "3", "B": "two words", "C": "x.service"}
    assert unit.environment() == {"A": "3", "B": "two words"}


def test_drop_ins_come_later_and_take_back() -> None:
    unit = read_unit([("x.service", UNIT), ("10.conf", "[Service]\nExecStart=\nExecStart=/opt/other\nEnvironment=\nRestart=no\nUser=\n")])
    assert [(one.value, one.path) for one in unit.every("ExecStart")] == [("/opt/other", "10.conf")]
    assert (unit.environment(), unit.last("Restart"), unit.last("User")) == ({}, "no", "")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends(end: str) -> None:
    unit = read_unit([("x", end.join(["\ufeff[Service]", "ExecStart=/a \\", "b\\\\", "User=u", ""]))])
    assert ([one.value for one in unit.every("ExecStart")], unit.last("User")) == (["/a  b\\\\"], "u")


def test_what_systemd_passes_over_and_what_it_refuses() -> None:
    unit = read_unit([("x", "User=a\n[Service]\nnonsense\nUser=\udcff\nGroup=\ufffe\nType=exec\n")])
    assert [(one.key, one.value) for one in unit.settings] == [("Type", "exec")]
    assert [line.partition(": ")[0] for line in unit.ignored] == ["x:1", "x:3", "x:4", "x:5"]
    with pytest.raises(BadLine):
        read_unit([("x", "[Service\nType=exec\n")])
    assert check("[oops\n").reason == Reason.UNIT_SYNTAX


def test_a_backslash_too_many_swallows_the_next_line() -> None:
    report = check("ExecStart=/opt/vllm serve m \\\n  --max-model-len 32768 \\\nRestart=on-failure\n")
    [finding] = report.findings
    assert (finding.code, finding.reason, finding.argument) == ("swallowed_directive", Reason.UNIT_SYNTAX, "Restart=on-failure")
    assert "line continuation" in finding.text
    assert report.restart == "no"
    assert report.argv[-1] == "Restart=on-failure"
    assert check("ExecStart=/opt/vllm serve m --x \\\n[Install]\nWantedBy=x\n").findings[0].argument == "[Install]"


@pytest.mark.parametrize(
    ("text", "code", "reason", "said"),
    [
        ('ExecStart=/v --spec {"method":"ngram"}', "unquoted_json", Reason.UNIT_SYNTAX, '{"method":"ngram"}'),
        ('ExecStart=/v --spec {"a": "b", "c": [1, 2]} x', "unquoted_json", Reason.UNIT_SYNTAX, '{"a": "b", "c": [1, 2]}'),
        ('ExecStart=/v [ [ { ["a", 1]', "unquoted_json", Reason.UNIT_SYNTAX, '["a", 1]'),
        ("ExecStart=/v [" + '"a", ' * 300 + "1]", "unquoted_json", Reason.UNIT_SYNTAX, '["a", "a"'),
        ('ExecStart=/v --spec={"a":"b"}', "unquoted_json", Reason.UNIT_SYNTAX, '--spec={"a":"b"}'),
        ("ExecStart=/v serve m > /var/log/v.log", "shell_operator", Reason.UNIT_SYNTAX, ">"),
        ("ExecStart=/v serve m 2>&1", "shell_operator", Reason.UNIT_SYNTAX, "2>&1"),
        ('ExecStart=/v \'{"a":"100%h"}\'', "specifier_in_json", None, "%h"),
        ("ExecStart=/v 50%0", "unknown_specifier", Reason.UNIT_SYNTAX, "%0"),
        ("ExecStart=/v $free", "unset_variable", None, "$free"),
        ("ExecStart=/v\nExecStartPre=/bin/sh -c 'x ${gone}'", "unset_variable", None, "$gone"),
        ("ExecStart=/v x\\d", "unknown_escape", None, "x\\d"),
        ("ExecStart=/v\nRestart=always", "restart", None, "Restart=always"),
        ("ExecStart=/v\nKillMode=process", "kill_mode", None, "GPU memory"),
        ("ExecStart=/v\nType=notify", "type_notify", None, "never send"),
        ("ExecStart=/v\nType=forking", "type", None, "exec"),
        ("ExecStart=/v 'a", "refused", Reason.UNIT_SYNTAX, "never closed"),
        ("ExecStart=/v\nExecStart=/w", "several_commands", Reason.UNIT_SYNTAX, "2 commands"),
        ("User=u", "no_command", Reason.UNIT_SYNTAX, "ExecStart="),
        ("ExecStart=/v\nnonsense", "ignored_line", None, "x.service:3"),
    ],
)
def test_findings(text: str, code: str, reason: Reason | None, said: str) -> None:
    report = check(text)
    finding = next(finding for finding in report.findings if finding.code == code)
    assert (finding.reason, said in finding.text) == (reason, True), finding.text
    assert report.reason == next((one.reason for one in report.findings if one.reason), None)


@pytest.mark.parametrize(
    "text",
    [
        "ExecStart=/v '{\"a\":\"b\"}' --x=[1,2] {} [] 100%% $$free 'a b'",
        "Environment=free=1\nExecStart=/v $free",
        "PassEnvironment=free\nExecStart=/v $free",
        "ExecStart=:/v $free",
        "ExecStart=/v $HOME ${PATH}",
        "Type=oneshot\nExecStart=",
        "ExecStart=/v '{{ $free }}'",
        "ExecStart=/v\nType=exec\nKillMode=mixed\nRestart=no",
    ],
)
def test_nothing_to_say(text: str) -> None:
    assert set(codes(check(text))) <= {"type", "no_command"}
    assert "unset_variable" not in codes(check(text))


def test_the_argv_that_proc_will_show() -> None:
    report = check('Environment=P=81\nExecStart=/v serve "%%" %n $$A ${P}00 $P $none\n')
    assert report.argv == ("/v", "serve", "%", "x.service", "$A", "8100", "81")
    assert check("ExecStart=:/v $A\n").argv == ("/v", "$A")
    assert check("ExecStart=@/v name $A\n", A="1 2").argv == ("name", "1", "2")
    assert check("ExecStart=/v %H\n").argv == ("/v", "%H")


def test_json_inside_of_json_is_one_finding() -> None:
    assert [finding.code for finding in check('ExecStart=/v [ {"a":1} ]').findings] == ["unquoted_json"]


def test_brackets_without_end_are_passed_over() -> None:
    for words in ("[ " * 3000, "{ " * 3000, '{"a": ' * 3000, "[ " * 900 + '"a" ' * 900):
        assert [finding.code for finding in check(f"ExecStart=/v {words}").findings] == []
