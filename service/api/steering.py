"""What people do to waiting experiments and to hosts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.api.auth import ADMIN, READ, SUBMIT, Caller, own
from service.api.deps import ReadSession, User, WriteSession
from service.api.experimentviews import experiment_out
from service.api.schemas import ExperimentOut, HostOut, host_out
from service.domain.errors import NotFound
from service.domain.runcode import allow_code
from service.domain.spec import Spec
from service.store import experiments, hosts, steering

router = APIRouter(dependencies=[READ])

Id = Annotated[int, Path(ge=1, le=2**31 - 1)]
HostName = Annotated[str, Path(max_length=200)]


class Hold(BaseModel):
    """Why it is held."""

    model_config = ConfigDict(extra="forbid")

    because: str = Field(default="", max_length=500)


class Change(BaseModel):
    """A new place in the queue: exactly one of these."""

    model_config = ConfigDict(extra="forbid")

    first: bool = False
    last: bool = False
    before: int | None = Field(default=None, ge=1, le=2**31 - 1)

    @model_validator(mode="after")
    def _one(self) -> Change:
        if (self.before is not None) + self.first + self.last != 1:
            raise ValueError("give exactly one of first, last, before")
        return self


class Baseline(BaseModel):
    """The pinned baseline of a model on a host."""

    host: str
    served_model: str
    experiment_id: int
    name: str


@router.patch("/v1/experiments/{experiment_id}", tags=["experiments"], dependencies=[SUBMIT])
def change(session: WriteSession, access: Caller, experiment_id: Id, body: Change) -> ExperimentOut:
    """Move a waiting experiment."""
    own(session, access, experiment_id)
    row = steering.move(session, experiment_id, access.name, before=body.before, last=body.last)
    return experiment_out(session, row)


@router.post("/v1/experiments/{experiment_id}/hold", tags=["experiments"], dependencies=[SUBMIT])
def hold(session: WriteSession, access: Caller, experiment_id: Id, body: Hold | None = None) -> ExperimentOut:
    """Keep a queued experiment from starting."""
    own(session, access, experiment_id)
    return experiment_out(session, steering.hold(session, experiment_id, access.name, body.because if body else ""))


@router.post("/v1/experiments/{experiment_id}/release", tags=["experiments"], dependencies=[SUBMIT])
def release(session: WriteSession, access: Caller, experiment_id: Id) -> ExperimentOut:
    """Let a held experiment start when it is due."""
    own(session, access, experiment_id)
    return experiment_out(session, steering.release(session, experiment_id, access.name))


@router.post("/v1/experiments/{experiment_id}/retry", status_code=201, tags=["experiments"], dependencies=[SUBMIT])
def retry(session: WriteSession, access: Caller, experiment_id: Id, response: Response) -> ExperimentOut:
    """Queue the same again as a new experiment."""
    own(session, access, experiment_id)
    allow_code(access, Spec.model_validate(experiments.get(session, experiment_id).spec))
    row = steering.retry(session, experiment_id, access.name)
    response.headers["Location"] = f"/v1/experiments/{row.id}"
    return experiment_out(session, row)


@router.post("/v1/hosts/{name}/pause", tags=["hosts"], dependencies=[ADMIN])
def pause(session: WriteSession, user: User, name: HostName) -> HostOut:
    """Start nothing new; what runs is finished."""
    return host_out(session, steering.pause(session, name, user, paused=True))


@router.post("/v1/hosts/{name}/resume", tags=["hosts"], dependencies=[ADMIN])
def resume(session: WriteSession, user: User, name: HostName) -> HostOut:
    """Start what is due again."""
    return host_out(session, steering.pause(session, name, user, paused=False))


@router.get("/v1/baselines", tags=["results"])
def baselines(session: ReadSession) -> list[Baseline]:
    """Every pinned baseline."""
    names = {row.id: row.name for row in hosts.every(session)}
    return [
        Baseline(
            host=names[row.host_id],
            served_model=row.served_model,
            experiment_id=row.experiment_id,
            name=experiments.get(session, row.experiment_id).name,
        )
        for row in steering.baselines(session)
    ]


@router.put("/v1/experiments/{experiment_id}/baseline", tags=["results"], dependencies=[SUBMIT])
def pin(session: WriteSession, access: Caller, experiment_id: Id) -> Baseline:
    """Make a successful experiment the baseline of its model on its host."""
    own(session, access, experiment_id)
    pinned = steering.pin_baseline(session, experiment_id, access.name)
    row = experiments.get(session, experiment_id)
    return Baseline(host=experiments.host_name(session, row), served_model=pinned.served_model, experiment_id=experiment_id, name=row.name)


@router.delete("/v1/experiments/{experiment_id}/baseline", tags=["results"], dependencies=[SUBMIT])
def unpin(session: WriteSession, access: Caller, experiment_id: Id) -> Baseline:
    """Forget that an experiment is a pinned baseline."""
    own(session, access, experiment_id)
    row = experiments.get(session, experiment_id)
    host = experiments.host_name(session, row)
    pinned = {(item.host_id, item.served_model): item.experiment_id for item in steering.baselines(session)}
    if pinned.get((row.host_id, row.served_model)) != experiment_id:
        raise NotFound(f"experiment {experiment_id} is not a pinned baseline", "", "see `expctl baseline show`")
    steering.unpin_baseline(session, host, row.served_model, access.name)
    return Baseline(host=host, served_model=row.served_model, experiment_id=experiment_id, name=row.name)
