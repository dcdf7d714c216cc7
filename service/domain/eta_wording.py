"""The words for when an experiment runs and ends: the same on the command line, in the API, on pages and in messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Literal

from service.domain.clock import clock, span
from service.domain.eta import Remaining
from service.domain.night import NIGHTS, Slot, Unknown
from service.domain.wording import LOAD_PHASES

NO_HISTORY = "no history yet"
Scope = Literal["configuration", "model", "kind", "bench"]


@dataclass(frozen=True)
class Basis:
    """What an estimate stands on."""

    loads: int
    loads_of: Scope
    runs: int
    runs_of: Scope
    kind: str
    """The engine's kind."""

    def text(self) -> str:
        """Such as `by 12 loads of this configuration`."""
        loads = f"by {_count(self.loads, 'load')} of {self._scope(self.loads_of)}"
        same = (self.loads, self.loads_of) == (self.runs, self.runs_of)
        return loads if same else f"{loads}, {_count(self.runs, 'measurement')} of {self._scope(self.runs_of)}"

    def _scope(self, scope: Scope) -> str:
        return {"configuration": "this configuration", "model": "this model", "bench": "this kind"}.get(scope, self.kind)


@dataclass(frozen=True)
class Reader:
    """Whose clock the times are for."""

    now: datetime
    """In the reader's zone."""
    zone: tzinfo
    """The host's."""

    def clock(self, moment: datetime) -> str:
        """A time of the day."""
        return clock(moment, self.now, self.zone)


def waiting_text(slot: Slot, basis: Basis | None, reader: Reader) -> str:
    """Of a queued experiment, such as `starts about 02:10, ends about 03:05 (p90 03:20); by 12 loads of this configuration`."""
    if slot.starts_at is None:
        return _unforeseen(slot, reader)
    will = _refused(slot, reader)
    about = "not before" if slot.at_least else "about"
    text = f"starts {about} {reader.clock(slot.starts_at)}"
    if slot.ends_at is None or slot.ends_p90 is None:
        return f"{will}{text}; how long it takes: {NO_HISTORY}"
    text += f", ends {about} {reader.clock(slot.ends_at)} (p90 {reader.clock(slot.ends_p90)})"
    return f"{will}{text}" + (f"; {basis.text()}" if basis else "")


def _refused(slot: Slot, reader: Reader) -> str:
    if slot.refused is None:
        return ""
    room = f"needs about {span(slot.refused.needs_s)}, {span(slot.refused.left_s)} are left"
    return f"will not fit tonight: {room}; next window opens {reader.clock(slot.refused.opens)}; "


def _unforeseen(slot: Slot, reader: Reader) -> str:
    refused = slot.refused
    if refused is not None and refused.whole_window:
        return f"does not fit into the window at all: needs about {span(refused.needs_s)}, {span(refused.left_s)} is the most there is"
    if refused is not None:
        return _refused(slot, reader) + f"not within {NIGHTS} nights"
    return {
        Unknown.SHUT: "the host takes nothing new",
        Unknown.BEHIND: f"{NO_HISTORY} of {slot.because_of}, which runs before it",
        Unknown.DEPENDS: f"when {slot.because_of} has succeeded",
        Unknown.NO_WINDOW: "the host has no window",
        Unknown.FAR: f"not within {NIGHTS} nights",
    }.get(slot.unknown or Unknown.NO_HISTORY, NO_HISTORY)


def running_text(slot: Slot, left: Remaining | None, basis: Basis | None, reader: Reader, following: Sequence[str] = ()) -> str:
    """Of a running experiment, such as `then compiling and CUDA graphs, about 41 min left (p90 55 min), all done about 03:05`.

    `left` is what is left of the load while it loads, else of everything; `following` are the load's phases to come.
    """
    if left is None or slot.ends_at is None or slot.ends_p90 is None:
        return NO_HISTORY
    text = left_text(left, following)
    if left.longest_s is not None:
        return text
    if slot.cut:
        return f"{text}; will be cut when production is wanted back"
    text += f", all done about {reader.clock(slot.ends_at)} (p90 {reader.clock(slot.ends_p90)})"
    return text + (f"; {basis.text()}" if basis else "")


def left_text(left: Remaining, following: Sequence[str] = ()) -> str:
    """Such as `then compiling and CUDA graphs, about 41 min left (p90 55 min)`; `following` are the load's phases to come."""
    then = f"then {_listed([LOAD_PHASES.get(name, name) for name in following])}, " if following else ""
    if left.longest_s is None:
        return f"{then}about {span(left.left.p50)} left (p90 {span(left.left.p90)})"
    more = f", at least {span(left.left.p50)} more" if left.left.p50 else ""
    return f"{then}longer than ever before (max {span(left.longest_s)}){more}"


def night_text(slots: Sequence[Slot], until: datetime | None, reader: Reader) -> str:
    """What fits, such as `the night: 5 of 7 fit before 07:20`; empty where nothing waits and nothing runs."""
    if not slots:
        return ""
    if all(slot.unknown == Unknown.SHUT for slot in slots):
        return f"the night: {len(slots)} wait, and the host takes nothing new"
    blind = next((slot for slot in slots if slot.unknown in {Unknown.NO_HISTORY, Unknown.BEHIND}), None)
    known = [slot for slot in slots if slot.ends_at is not None and slot.night == 0 and not slot.cut]
    tail = f"; {NO_HISTORY} of {blind.because_of or blind.id}" if blind else ""
    if until is not None:
        return f"the night: {len(known)} of {len(slots)} {'known to ' if blind else ''}fit before {reader.clock(until)}{tail}"
    ends = [slot.ends_at for slot in known if slot.ends_at is not None]
    done = f", done about {reader.clock(max(ends))}" if ends else ""
    return f"the night: {len(known)} of {len(slots)} foreseen{done}{tail}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
