"""What runs is compared with what was meant."""

from __future__ import annotations

import pytest

from service.domain.reasons import Reason
from workers.hosts.base import Fork, HostError, UnitDefinition
from workers.hosts.proof_of_argv import check_argv, expected_argvs

ARGV = ("/opt/vllm/bin/vllm", "serve", "m", "--port", "8001")


@pytest.mark.parametrize(
    "seen",
    [
        ARGV,
        ("/opt/vllm/bin/python3", *ARGV),
        ("/usr/bin/python3", "-I", *ARGV),
        ("/opt/other/vllm", *ARGV[1:]),
    ],
)
def test_the_same_arguments_are_accepted_behind_an_interpreter(seen: tuple[str, ...]) -> None:
    check_argv("x.service", seen, [ARGV], {})


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ((*ARGV[:-1], "8000"), "argument 4 is '8000', not '8001'"),
        (ARGV[:-2], "argument"),
        ((*ARGV, "--extra"), "not"),
        (("/usr/bin/sleep", *ARGV[1:]), "it runs '/usr/bin/sleep"),
        ((), "could not be read"),
        (("VLLM::APIServer",), "argument"),
    ],
)
def test_a_difference_is_named(seen: tuple[str, ...], words: str) -> None:
    with pytest.raises(HostError, match=words) as caught:
        check_argv("x.service", seen, [ARGV], {})
    assert caught.value.reason == Reason.UNIT_SYNTAX


@pytest.mark.parametrize("show", [{"NeedDaemonReload": "yes"}, {"DropInPaths": "/etc/systemd/system/x.d/1.conf"}])
def test_a_stale_definition_has_its_own_reason(show: dict[str, str]) -> None:
    with pytest.raises(HostError) as caught:
        check_argv("x.service", ARGV[:-1], [ARGV], show)
    assert caught.value.reason == Reason.STALE_UNIT_DEFINITION


def test_a_fork_s_variables_are_those_that_the_process_really_has() -> None:
    fork = Fork("p.service", ("/bin/vllm", "serve", "${MODEL}", "$EXTRA", "100%%", "$$5"))
    definition = UnitDefinition("expctl-1-x", (), fork=fork)
    [argv] = expected_argvs(definition, {"MODEL": "/m x", "EXTRA": "--a 1"})
    assert argv == ("/bin/vllm", "serve", "/m x", "--a", "1", "100%", "$5")


def test_what_cannot_be_known_is_not_taken_for_right() -> None:
    fork = Fork("p.service", ("/bin/vllm", "%H"))
    assert expected_argvs(UnitDefinition("expctl-1-x", (), fork=fork), {}) == []
    with pytest.raises(HostError, match="cannot be known"):
        check_argv("x.service", ARGV, [], {})
