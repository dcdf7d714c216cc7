"""systemd's reading of an ExecStart line and of an EnvironmentFile, written down a second time. What is in doubt is an error."""

from __future__ import annotations

BLANKS = " \t\n\r"
ESCAPED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39, "s": 32}


def command_line(text: str, variables: dict[str, str] | None = None) -> list[str]:
    """The arguments that the last ExecStart of a unit's text gives a process."""
    (line,) = [line for line in logical_lines(text) if line.startswith("ExecStart=") and line != "ExecStart="]
    words = split(line.partition("=")[2])
    assert words[0][0] not in "-@:+!|", "a prefix"
    words = [specified(word) for word in words]
    return [words[0], *(one for word in words[1:] for one in expanded(word, variables or {}))]


def logical_lines(text: str) -> list[str]:
    lines, begun = [], ""
    for line in text.split("\n"):
        assert "\r" not in line
        assert all(character >= " " or character == "\t" for character in line), "a raw control character"
        if line.lstrip(BLANKS)[:1] in ("#", ";"):
            continue
        begun += line.lstrip(BLANKS)
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1] + " "
            continue
        lines.append(begun.strip(BLANKS))
        begun = ""
    return lines


def split(text: str) -> list[str]:
    """extract_first_word with UNQUOTE and CUNESCAPE, again and again."""
    words: list[str] = []
    place = 0
    while place < len(text):
        if text[place] in BLANKS:
            place += 1
            continue
        if text[place] == ";" and text[place + 1 : place + 2] in ("", " ", "\t"):
            raise AssertionError("a command ends here")
        word, place = first_word(text, place)
        words.append(word)
    return words


def first_word(text: str, place: int) -> tuple[str, int]:
    out, quote = bytearray(), ""
    while place < len(text):
        character = text[place]
        if character == "\\":
            assert place + 1 < len(text), "a backslash at the end"
            value, place = unescaped(text, place + 1)
            out.append(value)
            continue
        if quote:
            if character == quote:
                quote = ""
            else:
                out += character.encode()
        elif character in "\"'":
            quote = character
        elif character in BLANKS:
            break
        else:
            out += character.encode()
        place += 1
    assert not quote, "an open quote"
    assert 0 not in out
    return out.decode(), place


def unescaped(text: str, place: int) -> tuple[int, int]:
    if text[place] == "x":
        return int(text[place + 1 : place + 3], 16), place + 3
    return ESCAPED[text[place]], place + 1


def specified(word: str) -> str:
    out, place = "", 0
    while place < len(word):
        if word[place] == "%":
            assert word[place + 1 : place + 2] == "%", f"a specifier: {word[place : place + 2]}"
            place += 1
        out += word[place]
        place += 1
    return out


def expanded(word: str, variables: dict[str, str]) -> list[str]:
    """replace_env_argv: `$FOO` as a whole is split, `${FOO}` stays one word, `$$` is a dollar."""
    if word.startswith("$") and not word.startswith(("${", "$$")) and word[1:]:
        return variables.get(word[1:], "").split()
    out, place = "", 0
    while place < len(word):
        if word.startswith("$$", place):
            out, place = out + "$", place + 2
        elif word.startswith("${", place) and "}" in word[place:]:
            end = word.index("}", place)
            out, place = out + variables.get(word[place + 2 : end], ""), end + 1
        else:
            out, place = out + word[place], place + 1
    return [out]


def environment(text: str) -> dict[str, str]:
    """The file as systemd 252 parses it, for lines of the form NAME="value", and what it keeps of it."""
    found, place = {}, 0
    while place < len(text):
        equals = text.index('="', place)
        name, value, place = text[place:equals], "", equals + 2
        while text[place] != '"':
            if text[place] == "\\":
                place += 1
                value += "" if text[place] == "\n" else text[place] if text[place] in '"\\`$' else "\\" + text[place]
            else:
                value += text[place]
            place += 1
        assert text[place : place + 2] == '"\n'
        place += 2
        # systemd drops the variable otherwise, and only says so in its log.
        assert all(character >= " " or character in "\t\n" for character in value)
        assert "\x7f" not in value
        found[name] = value
    return found
