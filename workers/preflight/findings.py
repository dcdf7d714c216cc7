"""What a look before the start has found: each thing good, wrong, doubtful, or not checked; never good because nobody looked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from service.domain.masking import LogMask, secrets_of
from service.domain.reasons import RULES, Reason


class Verdict(StrEnum):
    """What a finding means for the start."""

    GOOD = "good"
    WRONG = "wrong"  # it could only fail, so it is not started
    DOUBTFUL = "doubtful"  # it may work; a person should look
    UNCHECKED = "unchecked"  # nobody could look, and the text says why


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `reason` is set where it is wrong: what the experiment would end with."""

    about: str
    verdict: Verdict
    text: str
    reason: Reason | None = None
    evidence: str = ""
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """As it is stored and shown."""
        return {
            "about": self.about,
            "verdict": str(self.verdict),
            "text": self.text,
            "reason": self.reason and str(self.reason),
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


def good(about: str, text: str) -> Finding:
    """Looked at, and as it should be."""
    return Finding(about, Verdict.GOOD, text)


def doubtful(about: str, text: str, remedy: str = "") -> Finding:
    """It may work."""
    return Finding(about, Verdict.DOUBTFUL, text, remedy=remedy)


def unchecked(about: str, why: str) -> Finding:
    """Nobody could look."""
    return Finding(about, Verdict.UNCHECKED, why)


def wrong(about: str, reason: Reason, text: str, evidence: str = "", remedy: str = "") -> Finding:
    """It could only fail."""
    return Finding(about, Verdict.WRONG, text, reason, evidence or text, remedy or RULES[reason].remedy)


@dataclass(frozen=True)
class Report:
    """Everything that was looked at for one experiment."""

    findings: tuple[Finding, ...] = ()

    @property
    def refusal(self) -> Finding | None:
        """Why it is not started; None where nothing speaks against it for certain."""
        return next((finding for finding in self.findings if finding.verdict == Verdict.WRONG), None)

    @property
    def detail(self) -> str:
        """Everything that is wrong, as an ending says it: what has to be changed belongs into one round."""
        found = [finding for finding in self.findings if finding.verdict == Verdict.WRONG]
        return "found before the start: " + "; ".join(dict.fromkeys(finding.text for finding in found))

    def as_json(self) -> list[dict[str, Any]]:
        """As it is stored and shown."""
        return [finding.as_json() for finding in self.findings]


def masked(findings: Iterable[Finding], argv: Sequence[str], env: Mapping[str, str], more: Iterable[str] = ()) -> Report:
    """A report without the secrets of the command line and the environment that it is about."""
    named = {word.lstrip("-").replace("-", "_"): value for word, value in _named(argv)}
    mask = LogMask([*secrets_of(env), *secrets_of(named), *more])
    return Report(
        tuple(replace(one, text=mask.text(one.text), evidence=mask.text(one.evidence), remedy=mask.text(one.remedy)) for one in findings)
    )


def _named(argv: Sequence[str]) -> Iterable[tuple[str, str]]:
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            yield name, value if equals else "".join(argv[at + 1 : at + 2])
