"""POST /v1/experiments: one experiment, a list of them, or a sweep; all or nothing; once per Idempotency-Key."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from fastapi.encoders import jsonable_encoder
from sqlmodel import Session

from service.api.auth import SUBMIT, Caller
from service.api.deps import database
from service.api.experimentviews import experiments_out, with_eta
from service.api.schemas import ExperimentOut
from service.domain import loads
from service.domain.access import Access
from service.domain.errors import SpecError, UsageError
from service.domain.hashing import digest
from service.domain.runcode import allow_code
from service.domain.spec import Spec
from service.domain.specfile import MAX_DEPTH, Document, validate
from service.domain.sweep import expand
from service.store import idempotency, submission

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])

MOST = 500
CREATED, OK = 201, 200
SOURCE = "the request"

Key = Annotated[str | None, Header(min_length=1, max_length=200, description="send the same key to be sure that it is queued once")]
Again = Annotated[
    bool, Query(description="run even what was measured already; otherwise the earlier experiment is the answer, with status 200")
]


@router.post(
    "",
    status_code=CREATED,
    dependencies=[SUBMIT],
    responses={OK: {"description": "An identical configuration was measured already; nothing was queued."}},
)
def submit(
    request: Request,
    access: Caller,
    response: Response,
    body: Annotated[Any, Body(description="an experiment with the keys of the experiment file, or a list of them")],
    idempotency_key: Key = None,
    again: Again = True,
) -> ExperimentOut | list[ExperimentOut]:
    """Queue experiments. The answer is an object for one experiment and a list for several."""
    check_depth(body)
    # Before the key is looked up: what is no experiment has no digest either.
    specs, several = _specs(body)
    allow_code(access, *specs)
    store = database(request)
    if idempotency_key is None:
        with store.write() as session:
            status, answer = _submit(session, specs, access, several=several, again=again)
    else:
        with store.write() as session:
            first = idempotency.begin(session, access.name, idempotency_key, digest([body, again]))
        if first is not None:
            status, answer = int(first.status or CREATED), _read_back(first.answer)
        else:
            try:
                with store.write() as session:
                    status, answer = _submit(session, specs, access, several=several, again=again)
                    idempotency.answer(session, access.name, idempotency_key, status, jsonable_encoder(answer))
            except BaseException:
                with store.write() as session:
                    idempotency.forget(session, access.name, idempotency_key)
                raise
    response.status_code = status
    with store.read() as session:
        foreseen = with_eta(session, answer if isinstance(answer, list) else [answer])
    if isinstance(answer, list):
        return foreseen
    response.headers["Location"] = f"/v1/experiments/{answer.id}"
    return foreseen[0]


def _submit(
    session: Session, specs: list[Spec], access: Access, *, several: bool, again: bool
) -> tuple[int, ExperimentOut | list[ExperimentOut]]:
    made = submission.submit_all(session, specs, access.name, again=again)
    # A baseline that is loaded again may be another user's, whose configuration this one may not run.
    allow_code(access, *(Spec.model_validate(one.row.spec) for one in made if one.row.recheck_of is not None))
    # When they run is looked up after the commit: nobody else can write until then.
    shown = experiments_out(session, [one.row for one in made], foresee=False)
    status = OK if all(one.measured_already for one in made) else CREATED
    return status, shown if several else shown[0]


def check_depth(body: Any) -> None:
    """Refuse what nothing that follows could walk through; a file has the same limit."""
    level = [body]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item for value in level if isinstance(value, dict | list) for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise SpecError(f"{SOURCE} is nested too deeply", f"more than {MAX_DEPTH} levels", "an experiment needs a few only")


def _specs(body: Any) -> tuple[list[Spec], bool]:
    items = body if isinstance(body, list) else [body]
    try:
        documents = [document for item in items for document in expand(Document(item), SOURCE)]
        specs = [validate(document, SOURCE) for document in documents[: MOST + 1]]
        number = max(len(documents), loads.experiments(specs))
        if not 1 <= number <= MOST:
            raise UsageError(f"the request holds {number} experiments", f"between 1 and {MOST} are possible", "send them in parts")
        return specs, isinstance(body, list) or number > 1
    except SpecError as error:
        # A request has no lines that a person could look up.
        raise SpecError(error.what.replace(f"{SOURCE}, line 1: ", ""), error.why, error.todo) from None


def _read_back(answer: Any) -> ExperimentOut | list[ExperimentOut]:
    if isinstance(answer, list):
        return [ExperimentOut.model_validate(item) for item in answer]
    return ExperimentOut.model_validate(answer)
