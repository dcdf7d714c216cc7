"""systemd's command lines as words: split one, write one, and what becomes of `%` and `$` in between.

systemd takes a line apart in this order: quotes and backslashes, then `%` specifiers word by word, and `$` variables only when the
program starts. Words here are *half decoded*: quotes and backslashes are gone, `%` and `$` are still alive, and `%%` and `$$` stand
for themselves. So a word of an existing unit can be kept as it is, and one of ours goes through `literal`.

Bytes that are no UTF-8 are kept as surrogates, as Python does it for file names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

WHITESPACE = " \t\n\r"
PREFIXES = "@-:+!|"
"""What may stand before the program: other argv[0], failure is fine, no `$`, privileges (`+`, `!`), a shell (`|`, systemd 258)."""

_ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, '"': 34, "'": 39, "s": 32}
_NUMBERED = re.compile(r"x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=,@%$+^~-]+")
_MAX_BYTE, _MAX_CHARACTER = 0xFF, 0x10FFFF


class BadLine(ValueError):
    """systemd would not take this line."""


@dataclass(frozen=True)
class Word:
    """One word, and how it was written."""

    text: str
    raw: str
    odd_escape: bool = False
    """It holds an escape that systemd does not know, and so keeps as it is written."""


@dataclass(frozen=True)
class CommandLine:
    """One command of an ExecStart= value. The first word is the program, without its prefixes."""

    prefixes: str
    words: tuple[Word, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The words, half decoded."""
        return tuple(word.text for word in self.words)


def split_commands(value: str) -> tuple[CommandLine, ...]:
    """The commands in one ExecStart= value (continuation lines joined already); a lone `;` stands between two.

    Raises BadLine where systemd would refuse the value. Specifiers are not looked at.
    """
    commands: list[CommandLine] = []
    at = 0
    while True:
        first, at = _word(value, at)
        if first is None:
            return tuple(commands)
        if first.text == ";":
            continue
        words = [first]
        again = False
        while at < len(value):
            if value[at] == ";" and _ends(value, at + 1):
                at, again = _skip(value, at + 1), True
                break
            if value.startswith("\\;", at) and _ends(value, at + 2):
                words.append(Word(";", "\\;"))
                at = _skip(value, at + 2)
                continue
            word, at = _word(value, at)
            if word is None:
                break
            words.append(word)
        commands.append(_command(words))
        if not again:
            return tuple(commands)


def split_words(value: str) -> tuple[Word, ...]:
    """Words of any other setting that systemd unquotes, such as Environment=: no `;`, no prefixes."""
    words: list[Word] = []
    at = 0
    while True:
        word, at = _word(value, at)
        if word is None:
            return tuple(words)
        words.append(word)


def _command(words: list[Word]) -> CommandLine:
    program = words[0].text
    length = _prefix_length(program)
    path = program[length:]
    if not path:
        raise BadLine("no program is named")
    if any(char < " " or char in "'\"\\\x7f" for char in path):
        raise BadLine(f"the program's name {path!r} holds a quote, a backslash or a control character")
    if path.endswith("/") or ("/" in path and not path.startswith("/")) or path in {".", ".."}:
        raise BadLine(f"{path} is neither an absolute path nor the bare name of a program")
    if "@" in program[:length] and len(words) == 1:
        raise BadLine("the prefix @ needs a second word, which becomes argv[0]")
    return CommandLine(program[:length], (Word(path, words[0].raw, words[0].odd_escape), *words[1:]))


def _prefix_length(program: str) -> int:
    """How many characters before the program are prefixes: each kind once, one kind of privilege, `!!` being one."""
    seen = ""
    for index, char in enumerate(program):
        privilege = char in "+!" and not ("+" in seen or "!!" in seen or (char == "+" and "!" in seen))
        if not privilege and (char not in "@-:|" or char in seen):
            return index
        seen += char
    return len(program)


def _ends(value: str, at: int) -> bool:
    return at >= len(value) or value[at] in WHITESPACE


def _skip(value: str, at: int) -> int:
    while at < len(value) and value[at] in WHITESPACE:
        at += 1
    return at


def _word(value: str, at: int) -> tuple[Word | None, int]:
    """The word at or after a place, and where the next begins."""
    start = _skip(value, at)
    if start >= len(value):
        return None, start
    decoded = _decode(value, start, relaxed=False)
    # A word with one unknown escape is read again with every unknown escape kept as it is written.
    odd = decoded is None
    decoded = decoded or _decode(value, start, relaxed=True)
    if decoded is None:
        raise BadLine(f"a quote is opened and never closed: {value[start:][:80]}")
    data, end = decoded
    return Word(data.decode("utf-8", "surrogateescape"), value[start:end], odd), _skip(value, end)


def _decode(value: str, at: int, *, relaxed: bool) -> tuple[bytes, int] | None:
    """Bytes of the word that begins here, and where it ends; None for an open quote, and if strict for an unknown escape."""
    made = bytearray()
    quote = ""
    while at < len(value) and (quote or value[at] not in WHITESPACE):
        char = value[at]
        at += 1
        if char == "\\":
            found = _escape(value, at)
            if found is None and not relaxed:
                return None
            piece, used = found or (("\\" + value[at : at + 1]).encode("utf-8", "surrogateescape"), 1)
            made += piece
            at += used
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        else:
            made += char.encode("utf-8", "surrogateescape")
    return None if quote else (bytes(made), min(at, len(value)))


def _escape(value: str, at: int) -> tuple[bytes, int] | None:
    """What follows a backslash, and its length; None where systemd does not know it."""
    char = value[at : at + 1]
    if char in _ESCAPES and char:
        return bytes([_ESCAPES[char]]), 1
    match = _NUMBERED.match(value, at)
    if match is None:
        return None
    byte = match[1] or match[2]
    if byte is not None:
        number = int(byte, 16 if match[1] else 8)
        return (bytes([number]), len(match[0])) if 0 < number <= _MAX_BYTE else None
    number = int(match[3] or match[4], 16)
    # Half a surrogate pair is taken too.
    return (chr(number).encode("utf-8", "surrogatepass"), len(match[0])) if 0 < number <= _MAX_CHARACTER else None


def is_character(number: int) -> bool:
    """Whether systemd takes a code point for a character: no surrogates, none of Unicode's noncharacters."""
    surrogate = 0xD800 <= number <= 0xDFFF  # noqa: PLR2004 - Unicode's own ranges
    unused = 0xFDD0 <= number <= 0xFDEF or number & 0xFFFE == 0xFFFE  # noqa: PLR2004
    return number <= _MAX_CHARACTER and not surrogate and not unused


def literal(word: str) -> str:
    """A word that shall reach the program exactly as it is: its `%` and `$` doubled."""
    return word.replace("%", "%%").replace("$", "$$")


def literal_command(argv: Iterable[str]) -> tuple[str, ...]:
    """A whole argv as words. The program's path is the one word in which systemd expands no `$`.

    Raises BadLine for a program that no ExecStart= can name.
    """
    program, *rest = argv
    words = (program.replace("%", "%%"), *map(literal, rest))
    if program[:1] in PREFIXES or "${" in program or "$$" in program:
        raise BadLine(f"systemd would not start a program called {program}")
    _command([Word(program, program)])
    return words


def join_words(words: Iterable[str]) -> str:
    """Half-decoded words as the value of ExecStart=, on one line. Raises BadLine for a NUL, which no argument can hold."""
    return " ".join(quoted(word) for word in words)


def quoted(word: str) -> str:
    """One half-decoded word, in double quotes where that is needed; `%` and `$` stay alive inside them."""
    return word if _PLAIN.fullmatch(word) else '"' + "".join(map(_written, word)) + '"'


def _written(char: str) -> str:
    if char == "\0":
        raise BadLine("a word holds a NUL, which no argument of a program can")
    if char in '\\"':
        return "\\" + char
    if char in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[char]
    if char < " " or char == "\x7f" or not is_character(ord(char)):
        # systemd passes over a whole line that is no UTF-8 or holds a noncharacter, so those are written byte by byte.
        return "".join(f"\\x{byte:02x}" for byte in _bytes_of(char))
    return char


def _bytes_of(char: str) -> bytes:
    try:
        return char.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadLine("a word holds half a character") from None
