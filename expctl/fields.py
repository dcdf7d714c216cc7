"""The fields of what each verb prints as JSON, so that a wrong --fields is refused before the verb does anything.

Names only: the models that define them are heavy, and some belong to rooms that the command line may not enter. A test
compares the two.
"""

from __future__ import annotations

from service.domain.errors import UsageError

EXPERIMENT = (
    "id", "group_id", "name", "host", "created_by", "status", "step", "outcome", "reason", "reason_class", "status_text",
    "where_text", "detail", "evidence", "remedy", "spec", "spec_hash", "engine_hash", "bench_hash", "created_at", "started_at",
    "finished_at", "eta", "eta_p90", "starts_at", "eta_text", "attempt", "priority", "not_before", "retry_of",
    "after", "baseline_id", "load", "loads", "load_of", "recheck_of", "load_text", "progress", "facts", "events_url",
)  # fmt: skip
DETAIL = (*EXPERIMENT, "steps")
HOST = (
    "name", "transport", "simulated", "busy", "worker", "worker_silent", "blocked", "paused", "config", "shift_text", "night_text",
    "needs_person",
)  # fmt: skip
HOST_DETAIL = (*HOST, "created_at", "shift", "window", "open_by", "give_back_by", "unreachable_since", "report")
HOST_REQUEST = (
    "id", "host", "kind", "args", "status", "ok", "answer", "created_by", "created_at", "started_at", "finished_at",
)  # fmt: skip
NOTIFIER = (
    "name", "kind", "url", "events", "hosts", "default", "rotating", "disabled_at", "disabled_because", "pending", "dead", "created_by",
    "created_at",
)  # fmt: skip
NOTIFIER_MADE = (*NOTIFIER, "secret")
DELIVERY = (
    "id", "notifier", "type", "headline", "experiment_id", "event_id", "message_id", "status", "ended_because", "attempts", "next_try",
    "created_at", "delivered_at",
)  # fmt: skip
DELIVERY_DETAIL = (*DELIVERY, "message", "tries")
TOKEN = (
    "id", "name", "owner", "prefix", "scopes", "created_by", "created_at", "expires_at", "used_at", "revoked_at",
)  # fmt: skip
BASELINE = ("host", "served_model", "experiment_id", "name")
RESULTS = ("experiment", "phases", "first_request")
COMPARISON = (
    "schema", "baseline", "candidate", "comparable", "why_not", "verdict", "bench_phases", "spec_differences",
    "equal_fields", "spec_equal", "warnings", "experiments", "advice",
)  # fmt: skip
TIMELINE = ("since", "until", "at", "hosts")
REPORT = (
    "since", "until", "at", "label", "hosts", "outcomes", "ended", "failures", "gpu_s", "gpus_unknown", "loads", "production", "waiting",
    "next",
)  # fmt: skip
PRUNABLE = ("experiment_id", "name", "finished_at", "bytes")
BENCH = ("schema", "label", "model", "client", "phases", "first_request", "warmup", "warmup_settled")
IMPORTED = ("schema", "file", "source", "source_version", "label", "model", "phases", "notes")
PLAN = ("name", "host", "host_known", "command", "argv", "env", "findings", "requests", "loads", "recheck_baseline")
CHECK = ("what", "found", "state", "todo")

OF_VERB = {
    "demo": ("baseline", "candidate", "comparison"),
    "submit": EXPERIMENT,
    "cancel": EXPERIMENT,
    "retry": EXPERIMENT,
    "hold": EXPERIMENT,
    "release": EXPERIMENT,
    "move": EXPERIMENT,
    "pause": HOST,
    "resume": HOST,
    "queue": EXPERIMENT,
    "show": DETAIL,
    "watch": DETAIL,
    "wait": DETAIL,
    "logs": ("line",),
    "timeline": TIMELINE,
    "results": RESULTS,
    "report": REPORT,
    "compare": COMPARISON,
    "baseline": BASELINE,
    "prune": PRUNABLE,
    "doctor": CHECK,
    "bench": BENCH,
    "import": IMPORTED,
    "db": ("migration",),
    **dict.fromkeys(("notify list", "notify remove", "notify enable"), NOTIFIER),
    **dict.fromkeys(("notify add", "notify rotate"), NOTIFIER_MADE),
    "notify deliveries": DELIVERY,
    **dict.fromkeys(("notify test", "notify replay"), DELIVERY_DETAIL),
    "token create": (*TOKEN, "token"),
    **dict.fromkeys(("token list", "token revoke"), TOKEN),
    "host list": HOST,
    **dict.fromkeys(("host add", "host show", "host give-back", "host open"), HOST_DETAIL),
    **dict.fromkeys(("host check", "host trust", "host install", "host rehearse"), HOST_REQUEST),
}


def refuse_unknown(verb: str, words: list[str], asked: tuple[str, ...]) -> None:
    """UsageError where --fields names one that the verb's JSON does not have."""
    known = PLAN if verb == "submit" and "--dry-run" in words else OF_VERB.get(verb) or OF_VERB.get(f"{verb} {words[0] if words else ''}")
    unknown = [field for field in asked if known is not None and field not in known]
    if known is not None and unknown:
        raise UsageError(f"there is no field {unknown[0]}", f"fields of {verb}: {', '.join(known)}", "give some of these to --fields")
