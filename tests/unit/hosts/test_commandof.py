"""From a unit to the command line that a fork may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from service.domain.reasons import Reason
from workers.basecommand import BaseCommand
from workers.hosts.base import HostError, UnitSource
from workers.hosts.commandof import command_of, shown_command


def source(
    text: str, name: str = "vllm.service", variables: Mapping[str, str] | None = None, drop_in: str = "", **properties: str
) -> UnitSource:
    files = ((f"/etc/systemd/system/{name}", "[Service]\n" + text), ("/etc/10.conf", "[Service]\n" + drop_in))
    return UnitSource(name=name, files=files, sha256="", properties=properties, variables=variables or {})


def command(line: str, **more: str) -> BaseCommand:
    return command_of(source(f"ExecStart={line}\n", **more))


def refusal(text: str, **more: str) -> str:
    with pytest.raises(HostError) as caught:
        command_of(source(text, **more))
    assert caught.value.reason == Reason.UNIT_SYNTAX
    return caught.value.evidence


def test_words_stay_alive() -> None:
    found = command("/opt/vllm/bin/vllm serve $MODEL --name ${NAME} 100%% $$x '{\"a\": 1}' %H")
    assert found.words == ("/opt/vllm/bin/vllm", "serve", "$MODEL", "--name", "${NAME}", "100%%", "$$x", '{"a": 1}', "%H")
    assert (found.unit, found.lead) == ("vllm.service", 0)


def test_a_drop_in_replaces_it() -> None:
    found = command_of(source("ExecStart=/a serve x\nEnvironment=A=1\n", drop_in="ExecStart=\nExecStart=/b serve y\nEnvironment=A=2\n"))
    assert (found.words, found.variables) == (("/b", "serve", "y"), {"A": "2"})


def test_what_depends_on_the_units_name_or_file_is_pinned() -> None:
    found = command("/v %i %n %N %%i %y %h", name="vllm@kimi-x.service")
    assert found.words == ("/v", "kimi-x", "vllm@kimi-x.service", "vllm@kimi-x", "%%i", "/etc/systemd/system/vllm@kimi-x.service", "%h")
    assert command("/v %n", Id="real.service").words == ("/v", "real.service")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-/v serve x", ("/v", "serve", "x")),
        (":/v $a ${b}", ("/v", "$$a", "$${b}")),
        ("@/v shown serve", ("/v", "serve")),
    ],
)
def test_prefixes_that_change_nothing_for_an_experiment(line: str, words: tuple[str, ...]) -> None:
    assert command(line).words == words


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("env A=b -u C --chdir /x /opt/vllm serve m", "/opt/vllm"),
        ("/usr/bin/numactl --cpunodebind=0 -m 0 /opt/vllm serve m", "/opt/vllm"),
        ("numactl -N 0 --localalloc -- /opt/vllm serve m", "/opt/vllm"),
        ("taskset -c 0-7 nice -n 5 ionice -c 2 -n0 /opt/vllm serve m", "/opt/vllm"),
        ("nice -10 stdbuf -oL nohup /opt/vllm serve m", "/opt/vllm"),
    ],
)
def test_programs_that_become_the_engine_are_passed_over(line: str, program: str) -> None:
    found = command(line)
    assert found.words[found.lead] == program
    assert found.argv(found.words, found.lead, {}) == ("/opt/vllm", "serve", "m")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/bin/bash -c 'exec vllm serve m'", ["bash", "a shell", "ExecStart= itself"]),
        ("sh -lc 'vllm serve m'", ["sh", "a shell"]),
        ("/opt/llm/start.sh --port 8000", ["start.sh", "a shell"]),
        ("/usr/bin/env -S 'vllm serve m'", ["env -S"]),
        ("/usr/bin/env -i /opt/vllm serve m", ["env -i"]),
        ("/usr/bin/docker run --rm vllm/vllm-openai --model m", ["docker", "container", "engine.model"]),
        ("podman run x", ["podman"]),
        ("/opt/conda/bin/conda run -n v vllm serve m", ["conda", "environment's own program"]),
        ("uv run vllm serve m", ["uv"]),
        ("sudo -u vllm vllm serve m", ["sudo", "child", "User="]),
        ("numactl -N 0 timeout 5 vllm serve m", ["timeout"]),
        ("nice -n 5", ["no program"]),
        ("+/v serve m", ["`+`", "privileges"]),
        ("!!/v serve m", ["`!!`"]),
        ("|/v serve m", ["prefix `|`"]),
        ("/v a ; /w", ["2 commands", "ExecStartPre="]),
        ("/v 'a", ["vllm.service:2", "never closed"]),
        ("/v %0", ["%0", "%%"]),
        ('/v --x {"a":"b"}', ["single quotes"]),
        ("/v a \\\nRestart=no", ["Restart=no", "continuation"]),
    ],
)
def test_a_hidden_or_broken_command_line_is_refused(line: str, said: list[str]) -> None:
    evidence = refusal(f"ExecStart={line}\n")
    assert all(word in evidence for word in said), evidence


def test_units_that_have_none() -> None:
    assert "no ExecStart=" in refusal("User=x\n")
    assert "2 commands" in refusal("Type=oneshot\nExecStart=/a\nExecStart=/b\n")
    assert "template" in refusal("ExecStart=/v serve %i\n", name="vllm@.service")
    with pytest.raises(HostError, match="no unit file"):
        command_of(UnitSource("gone.service", (), "", {}))
    with pytest.raises(HostError, match="section header"):
        command_of(UnitSource("x.service", (("x", "[Service\n"),), "", {}))


def test_variables_of_the_living_process_win_and_are_not_shown() -> None:
    found = command_of(source("Environment=A=1 B=%n\nExecStart=/v serve $A $B\n", variables={"A": "hush"}))
    assert found.variables == {"A": "hush", "B": "vllm.service"}
    assert "hush" not in repr(found)
    assert found.argv(found.words, 0, {"B": "x y"}) == ("/v", "serve", "hush", "x", "y")
    assert found.argv(("/v", "%H"), 0, {}) == ()


def test_warnings() -> None:
    found = command_of(source("ExecStart=/v serve $free\nKillMode=none\n", NeedDaemonReload="yes"))
    assert [any(word in warning for warning in found.warnings) for word in ("$free", "KillMode=none", "edited after")] == [True] * 3


TITLE = ("VLLM::APIServer",)
PROD = "Environment=PORT=8123\nEnvironmentFile=/etc/default/x\nExecStart=/v serve $MODEL --port ${PORT} --name %p\n"


@pytest.mark.parametrize("live", [TITLE, (*TITLE, "", ""), ()])
def test_behind_a_title_the_files_tell_what_runs(live: tuple[str, ...]) -> None:
    found = replace(source(PROD, variables={"MODEL": "/m a", "PORT": "8124"}), live_argv=live)
    assert shown_command(found) == ("/v", "serve", "/m", "a", "--port", "8124", "--name", "vllm")


def test_a_process_that_shows_its_arguments_is_believed() -> None:
    assert shown_command(replace(source(PROD), live_argv=("python3", "/v", "serve"))) == ("python3", "/v", "serve")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ExecStart=/bin/bash -c 'exec vllm serve m --port ${PORT}'\nEnvironment=PORT=9\n",
            ("/bin/bash", "-c", "exec vllm serve m --port 9"),
        ),
        ("ExecStart=/v %H\n", ("/v", "%H")),
        ("ExecStart=/a\nExecStart=/b\n", ("/a", "/b")),
        ("ExecStart=/v 'a\n", ()),
        ("User=x\n", ()),
    ],
)
def test_what_could_not_be_changed_is_read_all_the_same(text: str, words: tuple[str, ...]) -> None:
    assert shown_command(replace(source(text), live_argv=TITLE)) == words
