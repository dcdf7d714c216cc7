"""/v1/compare: a baseline against one or more candidates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.api.auth import READ
from service.api.deps import ReadSession
from service.domain.comparison import Comparison, compare
from service.domain.errors import UsageError
from service.store import experiments, repeats
from service.store.arms import Arms

router = APIRouter(prefix="/v1/compare", tags=["results"], dependencies=[READ])

MOST = 50


@router.get("", response_model_by_alias=True)
def compare_experiments(
    session: ReadSession,
    base: Annotated[int, Query(ge=1, le=2**31 - 1)],
    ids: Annotated[str, Query(pattern=r"^[1-9]\d{0,9}(,[1-9]\d{0,9})*$", max_length=600, description="ids with commas between them")],
    all_fields: Annotated[bool, Query(description="with what the specs have in common, too")] = False,
) -> Comparison | list[Comparison]:
    """One comparison; a list of them, in order, where several candidates are named.

    An experiment stands for every load of its configuration in its submission, and a baseline for those after the candidate as well.
    """
    candidates = [int(one) for one in ids.split(",")]
    if len(candidates) > MOST or any(one > 2**31 - 1 for one in candidates):
        raise UsageError("too many or too large ids", f"at most {MOST} candidates", "name fewer")
    row = experiments.get(session, base)
    arms, between = Arms(session), repeats.between_loads(session, row.host_id)
    found = [compare(*arms.pair(row, experiments.get(session, one)), between, all_fields=all_fields) for one in candidates]
    return found[0] if len(found) == 1 else found
