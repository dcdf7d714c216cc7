"""Whether an engine stands still: by what moves, and not by how long it takes altogether."""

from __future__ import annotations

from service.domain.reasons import Reason
from workers.diagnosis.cause import Cause, Weight
from workers.diagnosis.journal import Journal
from workers.diagnosis.remarks import Remarks
from workers.engines.base import LoadPhase

STALL_S = 1800.0
"""Silence that no phase is known for, where the evidence names no limit of its own."""
NOTICE_S = 60.0
"""How often a waiting process says that it waits."""
QUIET_PHASES = frozenset({LoadPhase.TORCH_COMPILE, LoadPhase.PROFILING_WARMUP, LoadPhase.CUDA_GRAPH_CAPTURE, LoadPhase.WARMUP})
"""Phases that say nothing for many minutes while they work."""
NOTICES, NOTICES_IN_A_QUIET_PHASE, NOTICES_WHILE_SERVING = 5, 15, 2
IDLE_REPORTS = 6
"""Reports, ten seconds apart, of running requests without a token."""


def standstill(journal: Journal, remarks: Remarks) -> Cause | None:
    """What stands still; None where something moves, or too little time has passed to tell."""
    if journal.attempt.progress.started_serving:
        return _serving(journal)
    attempt, limit = journal.attempt, remarks.limits_s.get("stall", STALL_S)
    silent = attempt.pulse.silent_s(remarks.now_s)
    most = NOTICES_IN_A_QUIET_PHASE if attempt.progress.phase in QUIET_PHASES else NOTICES
    count = attempt.pulse.notices_in_a_row
    if count >= most:
        text = f"{count} notices of a waiting process in a row, and nothing else for {count} minutes or more"
        facts = {"silent_s": silent if silent and silent >= NOTICE_S else count * NOTICE_S}
        return Cause(Reason.NO_PROGRESS, Weight.GENERIC, text, facts=facts)
    if silent is not None and silent >= limit:
        text = f"nothing but notices for {silent:.0f} s; the last that counts: {journal.last_message[:200]}"
        return Cause(Reason.NO_PROGRESS, Weight.GENERIC, text, facts={"silent_s": silent})
    return None


def _serving(journal: Journal) -> Cause | None:
    attempt = journal.attempt
    if attempt.pulse.idle_in_a_row >= IDLE_REPORTS or (
        attempt.pulse.idle_in_a_row and attempt.pulse.notices_in_a_row >= NOTICES_WHILE_SERVING
    ):
        text = f"requests are running and no token came in {attempt.pulse.idle_in_a_row} reports in a row"
        return Cause(Reason.ENGINE_UNRESPONSIVE, Weight.GENERIC, text)
    if attempt.pulse.notices_in_a_row >= NOTICES:
        text = f"{attempt.pulse.notices_in_a_row} notices of a waiting process in a row while it serves"
        return Cause(Reason.ENGINE_UNRESPONSIVE, Weight.GENERIC, text)
    return None
