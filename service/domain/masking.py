"""Secrets never reach the database or a log, whatever a server or an engine prints of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SHORTEST = 6
"""A shorter text may stand anywhere by chance; blotting it out would only mislead."""
BLOT = "***"

_TELLING_NAME = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|(API|ACCESS|PRIVATE|SIGNING)_?KEY)S?$", re.IGNORECASE)
_NO_SECRET = re.compile(r"\d+|env:\w+|\*+|true|false|none|null", re.IGNORECASE)
"""Values that a telling name may have without hiding anything: a count of tokens, a reference, what is blotted out already."""
_WORD = (
    r"(?:api|access|private|signing|admin)[-_]?key|(?:hf|auth|access|bearer|refresh|admin|hub|bot|session|api)[-_]?token"
    r"|secret|passw(?:or)?d|passphrase"
)
_TELLING_KEY = re.compile(rf"(?:.*[-_])?(?:{_WORD})s?", re.IGNORECASE)
"""Of a mapping: `token` alone is mostly a word that a model has said."""
_TELLING_FLAG = re.compile(rf"--?(?:[\w-]*[-_])?(?:{_WORD}|token)s?", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):([^/\s@]+)@")
_VALUE = r"(?!\d+\b|env:\w|\*{3}|-|None\b|null\b)"
_HINT = re.compile(
    r"key|token|secret|passw|passphrase|bearer|basic|authorization|hf_|sk-|xox|gh[pousr]_|github_|glpat|AKIA|nvapi|eyJ|://|whsec_|expctl_"
    r"|hooks\.slack",
    re.IGNORECASE,
)
"""No text without one of these holds anything that the looks below could find."""
_LOOKS: tuple[tuple[re.Pattern[str], str], ...] = (
    (_URL_PASSWORD, rf"\1:{BLOT}@"),
    (re.compile(r"(?<=://)[^/\s:@]{16,}@"), f"{BLOT}@"),
    (re.compile(r"\bexpctl_[0-9A-Za-z]{20,}"), f"expctl_{BLOT}"),
    (re.compile(r"\bwhsec_[0-9A-Za-z+/=_-]+"), f"whsec_{BLOT}"),
    (re.compile(r"(hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[\w/-]+"), rf"\1{BLOT}"),
    (re.compile(r"\b(hf_)[0-9A-Za-z]{16,}|\b(sk-)[0-9A-Za-z_-]{12,}|\b(xox[abeprs]-)[0-9A-Za-z-]{10,}"), BLOT),
    (re.compile(r"\bgh[pousr]_[0-9A-Za-z]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bAKIA[0-9A-Z]{16}\b|\bnvapi-[\w-]{20,}"), BLOT),
    (re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"), BLOT),
    (re.compile(r"\b(bearer|basic)\s+[0-9A-Za-z._~+/=-]{6,}", re.IGNORECASE), rf"\1 {BLOT}"),
    (
        re.compile(r"(?<![\w-])((?:x-)?api-key|authorization)([\"']?: ?[\"']?)(?!bearer\b|basic\b|\*{3})[^\s\"',]{6,}", re.IGNORECASE),
        rf"\1\2{BLOT}",
    ),
    # A command line; several words may be one value only in quotes.
    (
        re.compile(rf"(?<![\w-])({_TELLING_FLAG.pattern})(\s+|=)({_VALUE})(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+)", re.IGNORECASE),
        rf"\1\2{BLOT}",
    ),
    # An environment, as a shell or systemd writes it.
    (re.compile(rf"\b([A-Z][A-Z0-9_]*(?:{_WORD.upper()}|TOKEN)S?)(=[\"']?){_VALUE}[^\s\"']{{{SHORTEST},}}"), rf"\1\2{BLOT}"),
    # A mapping or a call, as Python or JSON writes it; a list may stand around the value.
    (re.compile(rf"((?:\b|_)(?:{_WORD})s?[\"']?\s*[:=]\s*[\[(]?\s*)([\"']){_VALUE}[^\"'\n]+\2", re.IGNORECASE), rf"\1\2{BLOT}\2"),
    (re.compile(rf"([?&](?:[\w-]*[-_])?(?:{_WORD}|token|key|sig|signature)=)[^&\s\"']+", re.IGNORECASE), rf"\1{BLOT}"),
)
"""What can be told for a secret by its looks alone, or by the word before it."""


class Mask:
    """Replaces secrets in texts, and in texts inside of lists and mappings."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these as well from now on."""
        # Longest first: one secret may begin with another.
        known = {*self._secrets, *(one for one in secrets if len(one) >= SHORTEST)}
        self._secrets = sorted(known, key=len, reverse=True)

    def text(self, value: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            value = value.replace(secret, BLOT)
        return value

    def __call__(self, value: Any) -> Any:
        """Any value of JSON's kinds without secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self(item) for item in value]
        return value


class LooksMask(Mask):
    """The same, and also what has the looks of a secret, or the name of one before it."""

    def known(self, value: Any) -> Any:
        """The value without the secrets that are known: what a model has written is no log, and stays what it is."""
        return Mask(self._secrets)(value)

    def text(self, value: str) -> str:
        """A text without secrets."""
        value = super().text(value)
        if _HINT.search(value):
            for looks, instead in _LOOKS:
                value = looks.sub(instead, value)
        return value

    def __call__(self, value: Any) -> Any:
        """Any value of JSON's kinds without secrets: also what a telling key has, and the word behind a telling option."""
        if isinstance(value, dict):
            return {key: BLOT if _hides(key, item) else self(item) for key, item in value.items()}
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return [BLOT if word == BLOT else self.text(word) for word in masked_words(value)]
        return super().__call__(value)


class LogMask(LooksMask):
    """The same for a log line: values of any kind, as they would be written."""

    def __call__(self, value: Any) -> Any:
        """Any value without secrets."""
        if value is None or isinstance(value, bool | int | float):
            return value
        return super().__call__(value if isinstance(value, str | dict | list | tuple) else str(value))


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line without the values of options that are telling by their names."""
    shown: list[str] = []
    for word in words:
        before = words[len(shown) - 1] if shown else ""
        name, equals, value = word.partition("=")
        if _TELLING_FLAG.fullmatch(before) and not word.startswith("-") and not _NO_SECRET.fullmatch(word):
            shown.append(BLOT)
        elif equals and _TELLING_FLAG.fullmatch(name) and not _NO_SECRET.fullmatch(value):
            shown.append(f"{name}={BLOT}")
        else:
            shown.append(word)
    return shown


def _hides(key: object, value: object) -> bool:
    if not isinstance(key, str) or not isinstance(value, str) or not value or _NO_SECRET.fullmatch(value):
        return False
    telling: Callable[[str], object] = _TELLING_NAME.search if key.isupper() else _TELLING_KEY.fullmatch
    return bool(telling(key))


def secrets_of(environ: Mapping[str, str]) -> list[str]:
    """The values of an environment that are secret by their names, and the passwords in its addresses."""
    found = [value for name, value in environ.items() if _TELLING_NAME.search(name) and not _NO_SECRET.fullmatch(value)]
    return found + [match[2] for value in environ.values() for match in _URL_PASSWORD.finditer(value)]
