"""systemd's words: what it makes of a line, and that whatever we write comes out as it was meant."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from workers.execline import BadLine, join_words, literal, literal_command, quoted, split_commands, split_words
from workers.expansion import (
    SYSTEM_SPECIFIERS,
    Unresolved,
    expand,
    expand_specifiers,
    expand_variables,
    live_specifiers,
    name_specifiers,
    pin_specifiers,
    references,
)
from workers.hosts.unitfile import read_unit

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6)
RAW = st.binary(max_size=8).filter(lambda data: b"\0" not in data).map(lambda data: data.decode("utf-8", "surrogateescape"))


def texts(value: str) -> list[list[str]]:
    return [list(command.texts) for command in split_commands(value)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/bin/a  b\tc", ["/bin/a", "b", "c"]),
        ("/bin/a b\"c d\"e'f g'", ["/bin/a", "bc def g"]),
        ('/bin/a {"method":"mtp","n":2}', ["/bin/a", "{method:mtp,n:2}"]),
        ('/bin/a \'{"method":"mtp"}\'', ["/bin/a", '{"method":"mtp"}']),
        (r'/bin/a "{\"n\":2}"', ["/bin/a", '{"n":2}']),
        (r"/bin/a \n\t\s\x41\101\u00e9\U0001f600", ["/bin/a", "\n\t AAé😀"]),
        (r"/bin/a '\n' \\n", ["/bin/a", "\n", "\\n"]),
        (r"/bin/a \q\n \x00 \400", ["/bin/a", "\\q\n", "\\x00", "\\400"]),
        ("/bin/a '' \"\"", ["/bin/a", "", ""]),
        (r"/bin/a \; ';' x;y", ["/bin/a", ";", ";", "x;y"]),
        ("/bin/a %% %n $$ ${A} $B", ["/bin/a", "%%", "%n", "$$", "${A}", "$B"]),
        ("/bin/a | b > c & d", ["/bin/a", "|", "b", ">", "c", "&", "d"]),
        ("vllm serve", ["vllm", "serve"]),
    ],
)
def test_one_command(value: str, words: list[str]) -> None:
    assert texts(value) == [words]


def test_commands_are_parted_by_a_lone_semicolon() -> None:
    assert texts("/bin/a b ; /bin/c ;") == [["/bin/a", "b"], ["/bin/c"]]
    assert texts("; /bin/a") == [["/bin/a"]]
    assert texts("") == []


@pytest.mark.parametrize(
    ("value", "prefixes"),
    [("-@/bin/a b", "-@"), (":!!/bin/a", ":!!"), ("!-!/bin/a", "!-!"), ("+/bin/a", "+"), ("|/bin/a", "|"), ("/bin/a", "")],
)
def test_prefixes(value: str, prefixes: str) -> None:
    [command] = split_commands(value)
    assert (command.prefixes, command.texts[0]) == (prefixes, "/bin/a")


@pytest.mark.parametrize(
    "value",
    ["/bin/a 'b", '/bin/a "', "--/bin/a", "!!!/bin/a", "+!/bin/a", "bin/a", "/bin/", "-", ".", r"/bin/a\\b", r'"/bin/\"a"', "@/bin/a"],
)
def test_what_systemd_refuses(value: str) -> None:
    with pytest.raises(BadLine):
        split_commands(value)


def test_an_unknown_escape_is_remarked() -> None:
    assert [word.odd_escape for word in split_words(r"a \n \d")] == [False, False, True]


@given(WORDS | st.lists(RAW, max_size=6))
@example(["$$", "${A}", "$A", "%%", "%n", "%", "\ufffe", "\ufeff", ";", "'", '"', "\\", "#", "x\\"])
@example(["\x1b", "\x7f", "\r\n", "\t", "", " ", "é", "\udcff"])
def test_any_argv_comes_out_as_it_was_meant(words: list[str]) -> None:
    argv = ["/opt/100%/v llm", *words]
    line = f"ExecStart={join_words(literal_command(argv))}\n"
    [setting] = read_unit([("x", f"[Service]\n{line}Type=exec\n")]).every("ExecStart")
    [command] = split_commands(setting.value)
    # Every `$` and `%` must be spoken for, so nothing may stand in for them.
    assert list(expand(command.texts, {}, {})) == argv


@given(WORDS)
def test_live_words_are_written_as_they_are(words: list[str]) -> None:
    [command] = split_commands("/bin/a " + join_words(words))
    assert list(command.texts[1:]) == words


def test_json_as_it_is_written() -> None:
    written = quoted(literal(json.dumps({"method": "mtp", "n": 2}, separators=(",", ":"))))
    assert written == r'"{\"method\":\"mtp\",\"n\":2}"'
    assert join_words([literal("m-100%h-$HOME"), "--flag=1"]) == "m-100%%h-$$HOME --flag=1"


@pytest.mark.parametrize("argv", [["/bin/${A}"], ["/bin/$$"], ["-x"], ["a/b"], ["/bin/'a"], ["/bin/a", "b\0"], ["/bin/a", "\ud800"]])
def test_what_no_unit_can_say(argv: list[str]) -> None:
    with pytest.raises(BadLine):
        join_words(literal_command(argv))


@pytest.mark.parametrize(
    ("word", "made"),
    [
        ("$A", ["1", "2 3", "x"]),
        ("${A}", ["1 '2 3' \\x"]),
        ("x${A}", ["x1 '2 3' \\x"]),
        ("$free", []),
        ("$A/b", []),
        ("$", []),
        ("x$A", ["x$A"]),
        ("$$A", ["$A"]),
        ("a$$b${free}", ["a$b"]),
        ("$${A}", ["${A}"]),
        ("${A", ["${A"]),
        ("${A:-$$}", ["${A:-$}"]),
        ("${}", [""]),
        ("{{ $free }}", ["{{ $free }}"]),
    ],
)
def test_variables(word: str, made: list[str]) -> None:
    assert list(expand_variables([word], {"A": "1 '2 3' \\x"})) == made


def test_specifiers() -> None:
    assert expand_specifiers(["%n-%%n", "100%", "% %}"], {"n": "x.service"}) == ("x.service-%n", "100%", "% %}")
    assert live_specifiers(["%%n %i", "%i%H"]) == ("i", "H")
    with pytest.raises(Unresolved, match="%H"):
        expand_specifiers(["a%H"], SYSTEM_SPECIFIERS)


def test_specifiers_of_a_name_are_pinned() -> None:
    own = name_specifiers(r"a-b@c\x2dd-100%.service")
    assert own == {
        "n": r"a-b@c\x2dd-100%.service", "N": r"a-b@c\x2dd-100%", "p": "a-b", "P": "a/b", "i": r"c\x2dd-100%", "I": "c-d/100%",
        "j": "b", "J": "b", "f": "/c-d/100%",
    }  # fmt: skip
    pinned = pin_specifiers(["%i %%i %H"], own)
    assert pinned == (r"c\x2dd-100%% %%i %H",)
    assert expand_specifiers(pinned, {"H": "h"}) == (r"c\x2dd-100% %i h",)


def test_what_cannot_be_known_beforehand() -> None:
    assert references(["$A", "x${B}${A}", "$$C"]) == ("A", "B")
    assert expand(["$A"], {}, {}) == ()
    with pytest.raises(Unresolved, match="HOME"):
        expand(["${HOME}/x"], {}, {})
    assert expand(["${HOME}/x"], {}, {"HOME": "/h"}) == ("/h/x",)
    with pytest.raises(Unresolved, match="INVOCATION_ID"):
        expand(["$INVOCATION_ID"], {}, {"INVOCATION_ID": "1"})
