"""Does it serve, and is it the right one: probes, who owns the port, and the requests of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from service.domain.reasons import Reason
from workers.bench.failures import error_body, reason_in_stream, reason_of_status
from workers.diagnosis.cause import Cause, Weight
from workers.diagnosis.evidence import Evidence
from workers.diagnosis.http_lines import OK, UNAVAILABLE, Probe

REFUSES = frozenset({401, 403})
SERVER_ERROR = 500


@dataclass
class Serving:
    """What the answers say. `state` is None where nobody asked."""

    state: str | None = None
    engine: str | None = None
    position: dict[str, Any] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def conclude(self, state: str, reason: Reason, evidence: str, **facts: object) -> None:
        """A state with its cause."""
        self.state = state
        self.causes.append(Cause(reason, Weight.ROOT, evidence, facts=facts))


def judge_serving(found: Evidence) -> Serving:
    """Weigh ownership first: an answer of another process proves nothing."""
    made = Serving()
    _run(found, made)
    _ownership(found, made)
    if made.state is None and found.answers.probes:
        _probes(found, made)
    return made


def _ownership(found: Evidence, made: Serving) -> None:
    answers, remarks = found.answers, found.remarks
    unit_pid = found.shown.main_pid if found.shown else None
    owners = {pid for _, pid in remarks.port_owners}
    ports = {port for port, _ in remarks.port_owners}
    owner = answers.owner_pid or next(iter(owners), None)
    models = answers.models
    facts: dict[str, Any] = {"expected_model": remarks.expected_model, "owner_pid": owner, "unit_pid": unit_pid}
    if models:
        facts["answered_by"] = models[0]
    made.facts |= {name: value for name, value in facts.items() if value is not None}
    ours = _ours(found, unit_pid)
    strangers = owners - ours
    if len(ports) == 1 and len(owners) > 1 and strangers and owners & ours:
        made.conclude(
            "not_ready", Reason.PORT_SHARED_WITH_ANOTHER_SERVER, f"pids {', '.join(map(str, sorted(owners)))} listen on port {min(ports)}"
        )
        made.facts |= {"port": min(ports), "other_pid": min(strangers), "owner_pid": min(strangers)}
    elif remarks.expected_model and models and remarks.expected_model not in models:
        made.conclude("not_ready", Reason.WRONG_SERVER_ON_PORT, f"the port serves {', '.join(models)}, not {remarks.expected_model}")
    elif owner is not None and ours and owner not in ours and answers.belongs is not True:
        made.conclude("not_ready", Reason.WRONG_SERVER_ON_PORT, f"the port belongs to pid {owner}, the unit is pid {unit_pid}")


def _ours(found: Evidence, unit_pid: int | None) -> set[int]:
    """Processes of the unit, as far as they are known."""
    if unit_pid is None:
        return set()
    spoken = {one.pid for one in found.journal.speakers if one.pid} if found.journal else set()
    children = {pid for pid, note in found.remarks.notes.items() if note.parent == unit_pid}
    return {unit_pid} | spoken | children


def _probes(found: Evidence, made: Serving) -> None:
    answers = found.answers
    health = answers.last("/health", "/v1/health", "/health_generate", "/ping")
    loads = health if health is not None else next((probe for probe in reversed(answers.probes) if probe.loading), None)
    if loads is not None and loads.loading:
        made.state = "loading"
        if '"unavailable_error"' in loads.body or "Loading model" in loads.body:
            made.engine, made.position = "llama.cpp", {"phase": "weights_loading"}
        return
    refused = next((probe for probe in answers.probes if probe.status in REFUSES), None)
    if refused is not None:
        made.conclude("not_ready", Reason.AUTH_FAILED, f"{refused.path} answers {refused.status}")
    elif health is not None and health.status is None:
        _no_answer(found, made, health)
    elif health is not None and (health.status or 0) >= SERVER_ERROR:
        _unhealthy(found, made, health)
    elif answers.generated is False:
        _no_token(found, made)
    elif (health is None or health.status == OK) and (answers.models or answers.generated):
        made.state = "ready"
        made.facts["ready_evidence"] = "HTTP probe"
    elif health is not None and health.status == OK:
        made.warnings.append("health_alone: /health says only that the engine's process is not known to be dead")
        journal = found.journal
        if journal is not None and journal.attempt.progress.started_serving:
            made.state = "ready"


def _no_answer(found: Evidence, made: Serving, health: Probe) -> None:
    if health.silent and not health.refused:
        made.conclude("not_ready", Reason.ENGINE_UNRESPONSIVE, f"{health.path} gave no answer")
        return
    alive = found.shown is None or found.shown.active in {"active", "activating", "reloading"}
    served = found.journal is not None and found.journal.attempt.progress.started_serving
    if alive and not served:
        # vLLM binds its port before the load and listens after it.
        made.state = "loading"
    elif alive:
        made.conclude("not_ready", Reason.CONNECTION_REFUSED, f"{health.path}: {health.body}"[:300])


def _unhealthy(found: Evidence, made: Serving, health: Probe) -> None:
    engine = found.journal.attempt.log.engine if found.journal else None
    served = found.journal is not None and found.journal.attempt.progress.started_serving
    if health.status == UNAVAILABLE and not served and engine in {"sglang", "llama.cpp"}:
        made.state = "loading"
        return
    made.state = "failed"
    made.causes.append(Cause(Reason.ENGINE_DEAD, Weight.WRAPPER, f"{health.path} answers {health.status} {health.body}".strip()[:300]))


def _no_token(found: Evidence, made: Serving) -> None:
    probe = next(probe for probe in reversed(found.answers.probes) if probe.method == "POST" or "generate" in probe.path)
    if probe.status is None:
        what = "refused" if probe.refused else probe.body or "no answer"
        made.conclude("not_ready", Reason.REQUEST_REFUSED if probe.refused else Reason.ENGINE_UNRESPONSIVE, f"{probe.path}: {what}"[:300])
        return
    said = error_body(probe.body.encode())
    # An error may come with the status 200, and then its words alone tell.
    reason = reason_in_stream(said) if probe.status == OK else reason_of_status(probe.status, said)
    if probe.status >= SERVER_ERROR or reason == Reason.ENGINE_DEAD:
        made.state = "failed"
        made.causes.append(Cause(Reason.ENGINE_DEAD, Weight.WRAPPER, f"{probe.path} answers {probe.status} {probe.body}".strip()[:300]))
    else:
        # The fault of a request that is too long is its own; alone it shows no engine behind the server that counted its tokens.
        served = found.journal is not None and found.journal.attempt.progress.started_serving
        state = "ready" if reason == Reason.CONTEXT_OVERFLOW and served else "not_ready"
        made.conclude(state, reason, f"{probe.path}: {probe.status} {probe.body}"[:300])


def _run(found: Evidence, made: Serving) -> None:
    """A run's requests, and whether one process answered them all."""
    requests, remarks = found.answers.requests, found.remarks
    restarted = _changed(remarks.restarts) or _changed(remarks.pids) or _changed(remarks.identities)
    failed = [request for request in requests if not request.ok]
    if requests:
        made.facts |= {"requests_ok": len(requests) - len(failed), "requests_failed": len(failed)}
        made.facts["run"] = "invalid" if failed or restarted else "valid"
    if failed:
        made.facts["first_failure"] = failed[0].name
        made.facts |= {"http_status": failed[0].status, "error_code": failed[0].code}
    if len(requests) == 1:
        made.facts["request"] = "failed" if failed else "ok"
    if {"before", "after"} <= remarks.restarts.keys():
        made.facts["restarts"] = remarks.restarts["after"] - remarks.restarts["before"]
    if restarted:
        made.facts["run"] = "invalid"
        made.causes.append(Cause(Reason.SERVER_RESTARTED_DURING_RUN, Weight.ROOT, _change_text(found)))
    elif failed and failed[0].reason is not None:
        made.causes.append(Cause(failed[0].reason, Weight.CONSEQUENCE, f"{failed[0].name}: {failed[0].text}"[:300]))


def _changed(values: dict[str, Any]) -> bool:
    return len(values) > 1 and values.get("before") != values.get("after")


def _change_text(found: Evidence) -> str:
    remarks = found.remarks
    for name, values in (("NRestarts", remarks.restarts), ("MainPID", remarks.pids), ("identity", remarks.identities)):
        if _changed(values):
            return f"{name} was {values['before']} before the run and is {values['after']} after it"
    return ""
