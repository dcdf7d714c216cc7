"""The night host by host: a picture in signs, and a line for each experiment with what its steps took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from expctl.views.gantt import FOLD_W, Scale, Stretch, kinds, place_of, scale
from expctl.views.queue import NAME_W, NARROW, ROOMY, STYLES, span, words_column

Json = dict[str, Any]

SIGNS = {
    "clear": ("·", "dim"),
    "launch": ("·", "dim"),
    "load": ("░", "blue"),
    "warm": ("▒", "blue"),
    "measure": ("█", "blue"),
    "collect": ("·", "dim"),
    "foreseen": ("┄", "dim"),
    "parked": ("▁", "dim"),
}
LOST = ("✗", "bold red")
LEGEND = "· clear, launch, collect   ░ load   ▒ warm   █ measure   ✗ did not succeed   ┄ foreseen   ▁ production parked"
MOST_W = 200
SHOWN_STEPS = ("load", "warm", "measure")
HOUR_MIN = 100


def render(found: Json, width: int) -> RenderableType:
    """From the API's timeline."""
    bars = [(lane["host"], bar) for lane in found["hosts"] for bar in lane["experiments"]]
    planned = sum(len(lane["foreseen"]) for lane in found["hosts"])
    if not bars and not planned:
        return Text(_head(found, 0))
    parts: list[RenderableType] = [Text(_head(found, len(bars)), "bold", overflow="fold")]
    if width >= NARROW:
        parts += [Text(), *_picture(found, min(width, MOST_W))]
    if bars:
        parts += [Text(), _table(bars, width, several=len({host for host, _ in bars}) > 1)]
    return Group(*parts)


def _head(found: Json, count: int) -> str:
    begin, end = _local(found["since"]), _local(found["until"])
    same = begin.date() == end.date()
    until = f"{end:%H:%M}" if same else f"{end.day} {end:%b %H:%M}"
    what = f"{count} experiment{'' if count == 1 else 's'}" if count else "nothing ran"
    return f"{begin.day} {begin:%b %H:%M} to {until}: {what}"


def _picture(found: Json, width: int) -> Iterator[Text]:
    label = max(len(lane["host"]) for lane in found["hosts"]) + 2
    lanes = {lane["host"]: list(_stretches(lane, found)) for lane in found["hosts"]}
    stretches = [one for lane in lanes.values() for one in lane]
    if not stretches:
        return
    on = scale(stretches, width - label)
    yield Text(" " * label + _axis(on), "dim")
    for lane in found["hosts"]:
        yield Text(lane["host"].ljust(label), "bold").append_text(_signs(lane, lanes[lane["host"]], on))
        if names := _names(lane, on):
            yield Text(" " * label + names, "dim")
        if lane["parked"]:
            yield Text("parked".ljust(label) + _parked(lane, found, on), "dim")
    yield Text(LEGEND, "dim", overflow="fold")


def _signs(lane: Json, stretches: list[Stretch], on: Scale) -> Text:
    if not stretches:
        return Text("nothing ran", "not bold dim")
    took = kinds(stretches, on)
    lost = {_end(bar, on) for bar in lane["experiments"] if bar["outcome"] in {"failed", "invalid", "cancelled"}}
    signs = [LOST if place in lost else SIGNS[took[place]] if place in took else (" ", "") for place in range(on.width)]
    text = Text()
    for (sign, style), run in groupby(signs):
        text.append(sign * len(list(run)), f"not bold {style}" if style else "")
    return text


def _stretches(lane: Json, found: Json) -> Iterator[Stretch]:
    since, now = _local(found["since"]), _local(found["until"])
    for bar in lane["experiments"]:
        for step in bar["steps"]:
            end = step["finished_at"] or bar["finished_at"]
            begin, end = max(_local(step["started_at"]), since), min(_local(end) if end else now, now)
            if begin < end:
                yield Stretch(begin, end, step["step"])
        if bar["finished_at"] is None and bar["eta"] and _local(bar["eta"]) > now == _local(found["at"]):
            yield Stretch(now, _local(bar["eta"]), "foreseen")
    for one in lane["foreseen"]:
        yield Stretch(_local(one["starts_at"]), _local(one["eta"]), "foreseen")


def _end(bar: Json, on: Scale) -> int | None:
    return place_of(_local(bar["finished_at"]) - timedelta(milliseconds=1), on) if bar["finished_at"] else None


def _axis(on: Scale) -> str:
    line = [" "] * on.width
    for place, moment in on.ticks():
        line[place : place + 5] = f"{moment:%H:%M}"
    for place, idle in on.folds():
        line[place : place + FOLD_W] = f"≈{_long(idle)}≈".center(FOLD_W)
    return "".join(line[: on.width]).rstrip()


def _long(idle: timedelta) -> str:
    minutes = round(idle.total_seconds() / 60)
    return f"{minutes}min" if minutes < HOUR_MIN else f"{minutes / 60:.0f}h"


def _names(lane: Json, on: Scale) -> str:
    """Each id, and as much of the name as has room before the next one."""
    begun = [(place_of(max(_local(bar["started_at"]), on.busy[0][0]), on), bar) for bar in lane["experiments"]]
    begun += [(place_of(_local(one["starts_at"]), on), one) for one in lane["foreseen"]]
    known = [(place, bar) for place, bar in begun if place is not None]
    line = ""
    for number, (place, bar) in enumerate(known):
        if place < len(line):
            continue
        room = (known[number + 1][0] if number + 1 < len(known) else on.width) - place - 1
        word, name = str(bar["id"]), f"{bar['id']} {bar['name']}"
        line = line.ljust(place) + (name if len(name) <= room else f"{name[: room - 1]}…" if room > len(word) + 4 else word) + " "
    return line.rstrip()


def _parked(lane: Json, found: Json, on: Scale) -> str:
    spans = [
        Stretch(_local(one["parked_at"]), _local(one["restored_at"]) if one["restored_at"] else _local(found["until"]), "parked")
        for one in lane["parked"]
    ]
    signs = kinds(spans, on)
    return "".join(SIGNS["parked"][0] if place in signs else " " for place in range(on.width)).rstrip()


def _table(bars: Sequence[tuple[str, Json]], width: int, *, several: bool) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("ID", justify="right", no_wrap=True)
    words_column(drawn, "NAME", [bar["name"] for _, bar in bars], NAME_W[width >= ROOMY])
    if several:
        drawn.add_column("HOST", overflow="fold")
    steps = SHOWN_STEPS if width >= NARROW else ()
    for name in ("FROM", "TO", *(step.upper() for step in steps)):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("HOW IT ENDED", overflow="fold")
    for host, bar in bars:
        times = [_clock(bar["started_at"]), _clock(bar["finished_at"]), *(_took(bar, step) for step in steps)]
        words = [Text(bar["name"]), *([Text(host)] if several else [])]
        how = bar["status_text"] if width >= ROOMY else bar["status_text"].partition(":")[0]
        drawn.add_row(str(bar["id"]), *words, *times, Text(how, STYLES.get(bar["outcome"] or "", "")))
    return drawn


def _took(bar: Json, name: str) -> str:
    """All attempts at a step together; `-` where it was never done."""
    done = [step for step in bar["steps"] if step["step"] == name and step["finished_at"]]
    if not done:
        return "-"
    return span(sum((_local(step["finished_at"]) - _local(step["started_at"])).total_seconds() for step in done))


def _clock(text: str | None) -> str:
    return f"{_local(text):%H:%M}" if text else "-"


def _local(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone()
