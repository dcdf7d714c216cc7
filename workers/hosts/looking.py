"""Ask a machine what is there, in one command, as the login user may see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from service.domain.reasons import Reason
from workers.hosts import becoming, lookscript
from workers.hosts.base import HostError
from workers.hosts.remote_causes import classify
from workers.hosts.transport import DEADLINE_S, Transport

PYTHON = "python3"
LIMIT_BYTES = 16 * 1024 * 1024


def look(transport: Transport, question: Mapping[str, Any], deadline_s: float = DEADLINE_S, python: str = PYTHON) -> dict[str, Any]:
    """The answer to a question of `lookscript`. HostError where there is none."""
    argv = [python, "-I", "-c", script_of(becoming.__file__, lookscript.__file__)]
    done = transport.run(argv, stdin=json.dumps(question).encode(), deadline_s=deadline_s, limit_bytes=LIMIT_BYTES)
    try:
        answer = json.loads(done.stdout) if done.ok and not done.truncated else None
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][-300:]
    how = f"signal {done.signal}" if done.signal else f"status {done.exit_status}"
    raise HostError(classify(done.stderr, done.exit_status) or Reason.REMOTE_COMMAND_FAILED, said or f"{python} ended with {how}")


@cache
def script_of(*paths: str) -> str:
    """Modules of the standard library's own kind, joined into one text that runs by itself. The last one has the main program."""
    lines = [line for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    kept = [line for line in lines if not line.startswith(("from __future__ ", "from workers.hosts."))]
    return "\n".join(["from __future__ import annotations", *kept, ""])
