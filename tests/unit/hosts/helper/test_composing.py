from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.unit.hosts.helper import systemd_words
from workers.hosts.helper.compose import (
    NONCHARACTER,
    Order,
    check_folder,
    check_program,
    check_variables,
    environment_file,
    forked,
    quoted,
    rendered,
)
from workers.hosts.helper.refusals import Refused
from workers.hosts.helper.sources import environment_of
from workers.hosts.helper.unitfile import copied, merged, named, privileged, settings, specifiers_of, start_prefixes

UNIT = "expctl-12-ngram.service"
TEXTS = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40).filter(
    lambda text: not NONCHARACTER.search(text)
)
NASTY = some.one_of(TEXTS, some.sampled_from(["", ";", "\\", '"', "'", "$", "$$", "%", "%n", "${HOME}", "$HOME", "-", "@x", "#", "a\\"]))


def order(*words: str, **changed: object) -> Order:
    fields = {"env": {}, "cwd": None, "user": None, "conflicts": (), **changed}
    return Order(UNIT, words, **fields)  # type: ignore[arg-type]


@given(some.lists(NASTY, max_size=8))
def test_any_argument_arrives_as_it_was(words: list[str]) -> None:
    text = rendered(order("/opt/vllm", *words), None)
    assert systemd_words.command_line(text) == ["/opt/vllm", *words]


@given(some.dictionaries(some.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), TEXTS, max_size=5))
def test_any_variable_arrives_as_it_was_or_is_refused(env: dict[str, str]) -> None:
    try:
        check_variables(env)
    except Refused:
        assert any(ord(one) < 32 or ord(one) == 127 for value in env.values() for one in value)
        return
    text = environment_file(env)
    assert systemd_words.environment(text) == env
    assert environment_of(text) == env


def test_the_escapes_one_by_one() -> None:
    assert quoted('a"b\\c%d$e\nf\tg\x1b') == '"a\\"b\\\\c%%d$$e\\nf\\tg\\x1b"'
    assert quoted("%h/${MODEL}", alive=True) == '"%h/${MODEL}"'


@pytest.mark.parametrize("sign", ["\ufdd0", "\ufffe", "\U0010ffff"])
def test_noncharacters_are_refused(sign: str) -> None:
    for refused in (lambda: quoted(sign), lambda: check_variables({"A": sign}), lambda: check_folder(f"/srv/{sign}")):
        with pytest.raises(Refused):
            refused()
    assert quoted("\ufffd") == '"\ufffd"'


def test_what_is_alive_stays_alive() -> None:
    text = forked(order("/opt/vllm", "$ARGS", "${MODEL}", "100%%", "$$"), {"Unit": [], "Service": []}, "", None)
    found = systemd_words.command_line(text, {"ARGS": "a  b", "MODEL": "a  b"})
    assert found == ["/opt/vllm", "a", "b", "a  b", "100%", "$"]


def test_a_rendered_unit() -> None:
    wanted = order("/opt/vllm", "serve", '{"a":1}', user="vllm", cwd="/srv/50%", conflicts=("kimi.service", "other.service"))
    assert rendered(wanted, "/run/expctl-host/x.env") == (
        """# Written by expctl-host. Replaced at every start, gone after a reboot.
[Unit]
Description=expctl: expctl-12-ngram
Conflicts=kimi.service other.service
After=kimi.service other.service

[Service]
Type=exec
User=vllm
WorkingDirectory=/srv/50%%
EnvironmentFile=/run/expctl-host/x.env
ExecStart="/opt/vllm" "serve" "{\\"a\\":1}"
KillMode=control-group
TimeoutStopSec=120
LimitNOFILE=65535
LimitMEMLOCK=infinity
Restart=no
StandardInput=null
StandardOutput=journal
StandardError=journal
LogRateLimitIntervalSec=0
"""
    )


FRAGMENT = """# a comment
[Unit]
Description=Kimi
After=network.target
OnFailure=page-me.service
FailureAction=reboot
Conflicts=other.service

[Service]
Type=notify
User=vllm
Environment=A=1 \\
    # a comment in between
    B=%n
EnvironmentFile=-/etc/default/%p
ExecStartPre=/bin/echo a\\\\
ExecStart=/opt/vllm serve \\
  --port 8000
Restart=always
RestartForceExitStatus=1
PIDFile=/run/x.pid
KillMode=process
Sockets=kimi.socket
StandardOutput=append:/var/log/kimi.log
TimeoutStopSec=300

[Install]
WantedBy=multi-user.target
Alias=model.service
"""
DROP_IN = "stray=1\n[Service]\nEnvironment=C=100%%\n;comment\nCPUWeight=7\n[X-Private]\nA=b\n"


def test_a_forked_unit() -> None:
    files = [("/etc/systemd/system/kimi.service", FRAGMENT), ("/etc/systemd/system/kimi.service.d/a.conf", DROP_IN)]
    files.append(("/etc/systemd/system/service.d/all.conf", "[Service]\nNice=3\n"))
    kept = copied(merged(files), specifiers_of("kimi.service", files[0][0]))
    text = forked(order("-/opt/vllm", "serve", user="other", cwd="/srv", conflicts=("kimi.service",)), kept, "vllm", "/run/x.env")
    assert text == (
        """# Written by expctl-host. Replaced at every start, gone after a reboot.
[Unit]
After=network.target
Description=expctl: expctl-12-ngram
Conflicts=kimi.service
After=kimi.service

[Service]
Type=notify
User=vllm
Environment=A=1      B=kimi.service
EnvironmentFile=-/etc/default/kimi
ExecStartPre=/bin/echo a\\\\
TimeoutStopSec=300
Environment=C=100%%
CPUWeight=7
User=other
WorkingDirectory=/srv
EnvironmentFile=/run/x.env
Group=
SupplementaryGroups=
ExecStart=
ExecStart="-/opt/vllm" "serve"
RemainAfterExit=no
SendSIGKILL=yes
TimeoutStartSec=infinity
Restart=no
StandardInput=null
StandardOutput=journal
StandardError=journal
LogRateLimitIntervalSec=0
"""
    )


def test_the_same_user_keeps_its_groups() -> None:
    assert "Group=" not in forked(order("/a", user="vllm"), {"Unit": [], "Service": []}, "vllm", None)


def test_a_forking_unit_keeps_its_pid_file() -> None:
    text = "[Service]\nType=forking\nPIDFile=/run/x.pid\nKillMode=mixed\n"
    assert copied(merged([("/a", text)]), {})["Service"] == ["Type=forking", "PIDFile=/run/x.pid", "KillMode=mixed"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[A]\nb=c\n", [("A", "b", "c")]),
        ("[A]\n  b = c  \n", [("A", "b", "c")]),
        ("[A]\nb=c \\\n  d\\\n\ne=f\n", [("A", "b", "c    d"), ("A", "e", "f")]),
        ("[A]\nb=c\\\\\ne=f\n", [("A", "b", "c\\\\"), ("A", "e", "f")]),
        ("[A]\nb=c\\\n#x\\\n;y\nd\n", [("A", "b", "c d")]),
        ("[A]\nb=c\\", [("A", "b", "c")]),
        ("[A]\nnothing\n[B]\nb=\n", [("B", "b", "")]),
        ("[A]\nb=x\u2028y\x0cz\n", [("A", "b", "x\u2028y\x0cz")]),
    ],
)
def test_lines_are_read_as_systemd_does(text: str, found: list[tuple[str, str, str]]) -> None:
    assert list(settings(text, "/a")) == found


@pytest.mark.parametrize("text", ["[A]\r\nb=c\r\n", "[A]\nb=c\0\n", ".include /etc/x\n"])
def test_lines_that_versions_read_differently_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        list(settings(text, "/a"))


def test_specifiers_of_the_name() -> None:
    found = specifiers_of("vllm-big@kimi-k2\\x2d5.service", "/etc/systemd/system/vllm-big@.service")
    assert {letter: found[letter] for letter in "nNpPiIjJyY"} == {
        "n": "vllm-big@kimi-k2\\x2d5.service",
        "N": "vllm-big@kimi-k2\\x2d5",
        "p": "vllm-big",
        "P": "vllm/big",
        "i": "kimi-k2\\x2d5",
        "I": "kimi/k2-5",
        "j": "big",
        "J": "big",
        "y": "/etc/systemd/system/vllm-big@.service",
        "Y": "/etc/systemd/system",
    }
    assert named("%I %%I %i2 %h %%", {"i": "a", "I": "b/c"}) == "b/c %%I a2 %h %%"
    with pytest.raises(Refused, match="cannot be put into a copy"):
        named("%i", {"i": "a\\x2db"})


@pytest.mark.parametrize(
    "line",
    [
        "ExecStartPre=+/bin/a",
        "ExecStartPre=-+/bin/a",
        "ExecStopPost=!!/bin/a",
        "ExecReload=!/bin/a",
        "ExecCondition=|/bin/a",
        'ExecStartPost="+/bin/a" b',
        "ExecStartPost=\\x2b/bin/a",
        "ExecStartPre=/bin/a ; +/bin/b",
        "PermissionsStartOnly=true",
        "PAMName=login",
    ],
)
def test_a_part_that_runs_as_root_is_found(line: str) -> None:
    assert privileged([("Service", *line.split("=", 1))]) == line  # type: ignore[list-item]


@pytest.mark.parametrize(
    "line", ["ExecStartPre=/bin/a +b !c", "ExecStartPre=-@:/bin/a", "ExecStart=+/bin/a", "PermissionsStartOnly=no", "Nice=+1", "PAMName="]
)
def test_what_does_not_run_as_root_is_not_taken_for_it(line: str) -> None:
    assert privileged([("Service", *line.split("=", 1))]) == ""  # type: ignore[list-item]


def test_prefixes_of_the_one_command() -> None:
    def prefixes(*lines: str) -> str:
        return start_prefixes([("Service", "ExecStart", line) for line in lines], "x")

    assert prefixes("/a b") == ""
    assert prefixes("-@/a b") == "-@"
    assert prefixes("/a", "", '":/b" c') == ":"
    for lines in [(), ("/a", "/b"), ("/a ; /b",), ("/a", "")]:
        with pytest.raises(Refused, match="exactly one"):
            prefixes(*lines)


@pytest.mark.parametrize("word", ["/a\nb", '/a"b', "/a'b", "/a\\b", "/a$b", "/a//b", "/a/./b", "/a/.", "/a/", "/a\x7f"])
def test_programs_that_systemd_would_not_take_are_refused(word: str) -> None:
    with pytest.raises(Refused):
        check_program(word)


@pytest.mark.parametrize("word", ["vllm", "-/bin/true", "@/a", "+/a", ""])
def test_a_rendered_program_is_an_absolute_path(word: str) -> None:
    with pytest.raises(Refused, match="absolute"):
        rendered(order(word), None)


@pytest.mark.parametrize("path", ["srv", "", "-/srv", "~", "/srv\n[Service]", "/srv\\", "/srv ", "/" + "a" * 5000])
def test_folders_that_a_unit_cannot_say_are_refused(path: str) -> None:
    with pytest.raises(Refused):
        check_folder(path)


@pytest.mark.parametrize("name", ["INVOCATION_ID", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "MAINPID", "CREDENTIALS_DIRECTORY"])
def test_systemds_own_variables_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="set by systemd"):
        check_variables({name: "1"})
    check_variables({"MY_" + name: "1", "LD_LIBRARY_PATH": "/usr/local/cuda/lib64"})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A=1\nB = 2 3 \n# C=4\n;D=5\nE='a \"b'  \n", {"A": "1", "B": "2 3", "E": 'a "b'}),
        ('A="x\\"y\\\\z\\$\\q"\n', {"A": 'x"y\\z$\\q'}),
        ('A="two\nlines"\nB=con\\\ntinued\n', {"A": "two\nlines", "B": "continued"}),
        ("A=\nnonsense\nB=x'y'z\n", {"A": "", "B": "xyz"}),
    ],
)
def test_an_admins_environment_file_is_read_as_systemd_does(text: str, found: dict[str, str]) -> None:
    assert environment_of(text) == found


def test_a_program_that_ends_keeps_its_ending_and_gets_a_folder() -> None:
    text = rendered(order("/bin/true", once=True), None)
    for line in (
        "RemainAfterExit=yes",
        "StateDirectory=expctl-work/expctl-12-ngram",
        "WorkingDirectory=/var/lib/expctl-work/expctl-12-ngram",
    ):
        assert f"\n{line}\n" in text
    own = rendered(order("/bin/true", once=True, cwd="/srv/x"), None)
    assert "StateDirectory" not in own
    assert "RemainAfterExit" not in rendered(order("/bin/true"), None)
