"""/v1/prune: what would go of old experiments, and making it go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from service.api.auth import ADMIN, READ
from service.api.deps import ReadSession, User, WriteSession
from service.domain.errors import UsageError
from service.store import retention

router = APIRouter(prefix="/v1/prune", tags=["manage"], dependencies=[READ])

OlderThan = Annotated[float | None, Query(ge=0, le=1e10, description="seconds since the experiment finished")]
MaxBytes = Annotated[int | None, Query(ge=0, le=2**62, description="how much the logs and answers of all experiments may hold together")]


class PrunableOut(BaseModel):
    """The engine's log and the answers' texts of one experiment."""

    experiment_id: int
    name: str
    finished_at: datetime | None
    bytes: int


def _plan(session: ReadSession, older_than_s: float | None, max_bytes: int | None) -> list[retention.Prunable]:
    if older_than_s is None and max_bytes is None:
        raise UsageError("nothing says what may go", "", "give older_than_s or max_bytes")
    older_than = None if older_than_s is None else timedelta(seconds=older_than_s)
    return retention.plan(session, older_than=older_than, max_bytes=max_bytes)


@router.get("")
def plan(session: ReadSession, older_than_s: OlderThan = None, max_bytes: MaxBytes = None) -> list[PrunableOut]:
    """What would go; nothing does."""
    return [PrunableOut.model_validate(one, from_attributes=True) for one in _plan(session, older_than_s, max_bytes)]


@router.post("", dependencies=[ADMIN])
def prune(session: WriteSession, user: User, older_than_s: OlderThan = None, max_bytes: MaxBytes = None) -> list[PrunableOut]:
    """Remove it. Outcomes, summaries, figures and events stay."""
    going = _plan(session, older_than_s, max_bytes)
    retention.prune(session, going, user)
    return [PrunableOut.model_validate(one, from_attributes=True) for one in going]
