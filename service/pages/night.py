"""/night: the digest of a night as the message has it, ranked, with what it cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlmodel import Session

from service.api.auth import READ
from service.api.deps import ReadSession
from service.domain.digest import NightFacts, digest, ranked
from service.domain.errors import UsageError
from service.domain.reasons import RULES
from service.domain.status import Outcome
from service.pages.doors import PageRoute, Viewer
from service.pages.rendering import address, page
from service.store import board, hosts
from service.store import digest as nights
from service.store.tables import utc_now

router = APIRouter(route_class=PageRoute, include_in_schema=False, dependencies=[READ])

DAY = timedelta(days=1)
Cause = tuple[int, str, str, list[int]]
"""How often, why, what to do, and which experiments."""
_NIGHTS = board.Kept[datetime, NightFacts]()
"""By their beginning. How many still wait changes while nothing ends, and is looked up anew."""


@router.get("/night")
def night(request: Request, session: ReadSession, who: Viewer, of: Annotated[str | None, Query(max_length=10)] = None) -> Response:
    """The night that began on the evening of a date; without one the latest."""
    del who
    now = utc_now()
    evening = _noon(of, now)
    facts = _facts(session, evening, now)
    context = {
        "title": f"Night of {evening.day} {evening:%b}",
        "facts": facts,
        "message": digest(facts, now) if facts else None,
        "ranked": ranked(facts) if facts else [],
        "baselines": {one.comparison.baseline for one in facts.experiments if one.comparison} if facts else set(),
        "causes": _causes(facts) if facts else [],
        "evening": evening,
        "earlier": f"{evening - DAY:%Y-%m-%d}",
        "later": f"{evening + DAY:%Y-%m-%d}" if evening + DAY <= now else None,
        "live": evening + DAY > now,
        "twin": address("/v1/report", since=evening.isoformat(), until=(evening + DAY).isoformat()),
    }
    return page(request, "night.html", context)


def _facts(session: Session, evening: datetime, now: datetime) -> NightFacts | None:
    """What a night brought; None where nothing ended. Kept by the process, as judging every result takes a while."""
    kept, every = _NIGHTS.of(session), hosts.every(session)
    ended = board.finishes(session, board.since(session, evening), evening + DAY)
    if not ended:
        return None
    if evening not in kept:
        kept[evening] = nights.facts(session, nights.Night(every, ended), now)
    known = kept[evening]
    produced, waiting = nights.standing(session, [row for row in every if row.name in known.hosts], known.began, now)
    return replace(known, production=produced, waiting=waiting)


def _noon(text: str | None, now: datetime) -> datetime:
    """When a night begins: what runs before noon belongs to the night before, as in the morning's message."""
    noon = now.astimezone().replace(hour=12, minute=0, second=0, microsecond=0)
    if not text:
        return noon if noon <= now else noon - DAY
    try:
        date = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=noon.tzinfo)
    except ValueError:
        raise UsageError(f"{text!r} is no date", "", "write one such as 2026-11-30") from None
    return noon.replace(year=date.year, month=date.month, day=date.day)


def _causes(facts: NightFacts) -> list[Cause]:
    """What failed by its cause, the most frequent first."""
    lost = [one for one in facts.experiments if one.outcome in {Outcome.FAILED, Outcome.INVALID}]
    found = []
    for reason, count in Counter(one.reason for one in lost).most_common():
        rule = RULES[reason] if reason else None
        ids = [one.id for one in lost if one.reason == reason]
        found.append((count, rule.sentence if rule else "no reason was recorded", rule.remedy if rule else "", ids))
    return found
