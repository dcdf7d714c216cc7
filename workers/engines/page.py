"""A Prometheus page, line by line: the text format 0.0.4, and of OpenMetrics what differs in practice."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?=[\s{])\s*(?:\{(.*)\}\s*)?([^\s{}]+)(?:\s+[-+\d.eE]+)?")
"""Each kind of sign is followed by another kind, so that no line, however odd, is tried in more than one way."""
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_EXEMPLAR = re.compile(r"\s#\s\{.*$")
MOST_POSITION_DIGITS = 5
"""No draft is longer; a page that says so is not believed, since a list of that length would be made."""
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass(frozen=True)
class Sample:
    """One line of a page."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True)
class Page:
    """A parsed page; lines that are none are counted, not raised."""

    samples: tuple[Sample, ...]
    parse_errors: int = 0
    _by_name: dict[str, list[Sample]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_name: dict[str, list[Sample]] = {}
        for sample in self.samples:
            by_name.setdefault(sample.name, []).append(sample)
        object.__setattr__(self, "_by_name", by_name)

    def series(self, *names: str) -> list[Sample]:
        """Samples of the first of these names that is there; NaN and infinity, which say nothing, left out.

        The ending `_total` is what the format adds to a counter's name; a page may be shown without it.
        """
        return [sample for sample in self._found(names) if math.isfinite(sample.value)]

    def unreadable(self, *names: str) -> bool:
        """Whether the series is there, and holds something that is no number."""
        return any(not math.isfinite(sample.value) for sample in self._found(names))

    def _found(self, names: Sequence[str]) -> list[Sample]:
        spelt = (*names, *(name.removesuffix("_total") for name in names))
        # Some relays know no colon in a name, and Ray puts a word of its own before it.
        plain = [name.replace(":", "_") for name in spelt]
        return next((self._by_name[name] for name in (*spelt, *plain, *(f"ray_{name}" for name in plain)) if name in self._by_name), [])

    def created(self, *names: str) -> dict[str, float]:
        """When the series of these counters began, as the page tells beside them: series and labels to seconds of the epoch."""
        found: dict[str, float] = {}
        for name in names:
            for sample in self.series(name.removesuffix("_total") + "_created"):
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
        return found

    def total(self, *names: str) -> float | None:
        """Sum over every label; None where there is no such series."""
        found = self.series(*names)
        return math.fsum(sample.value for sample in found) if found else None


def parse_page(text: str) -> Page:
    """Parse the text format 0.0.4, and of OpenMetrics what differs in practice."""
    samples: list[Sample] = []
    errors = 0
    # Not splitlines(): a label may hold U+2028 and its like.
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        sample = _parse_line(stripped)
        if sample is None:
            errors += 1
        else:
            samples.append(sample)
    return Page(tuple(samples), errors)


def _parse_line(line: str) -> Sample | None:
    match = _SAMPLE.fullmatch(_EXEMPLAR.sub("", line))
    labels = _parse_labels(match[2] or "") if match else None
    if match is None or labels is None:
        return None
    try:
        return Sample(match[1], labels, float(match[3]))
    except ValueError:
        return None


def _parse_labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text.rstrip()):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        labels[match[1]] = re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), match[2])
        position = match.end()
    return labels


def per_position(samples: list[Sample]) -> list[float] | None:
    """The samples of one counter by their label `position`, in order; None where there are none."""
    positions: dict[int, float] = {}
    for sample in samples:
        position = sample.labels.get("position", "")
        if position.isdecimal() and len(position) < MOST_POSITION_DIGITS:
            positions[int(position)] = positions.get(int(position), 0.0) + sample.value
    return [positions.get(index, 0.0) for index in range(max(positions) + 1)] if positions else None
