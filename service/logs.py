"""How the processes write their logs: one line a fact, for people or for programs, and never a secret.

Libraries that use the standard library's logging (uvicorn, Celery, SQLAlchemy) come out the same way. What an experiment's worker
logs carries `experiment`, `host` and `step`, bound where it takes the experiment up.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor, WrappedLogger

from service.domain.masking import LogMask, secrets_of

ORDER = ["timestamp", "level", "event", "host", "experiment", "step"]


def configure(*, json: bool) -> None:
    """Write structured lines to standard error, as JSON or as logfmt. Once a process, before it logs."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    written: list[Processor] = [structlog.processors.format_exc_info, _masked(LogMask(secrets_of(os.environ))), _renderer(json=json)]
    structlog.configure(processors=[*shared, *written], logger_factory=structlog.WriteLoggerFactory(sys.stderr))
    _route_libraries([*shared, structlog.stdlib.add_logger_name], written)


def _renderer(*, json: bool) -> Processor:
    if json:
        return structlog.processors.JSONRenderer(ensure_ascii=False)
    return structlog.processors.LogfmtRenderer(key_order=ORDER, drop_missing=True, bool_as_flag=False)


def _masked(mask: LogMask) -> Processor:
    def processor(logger: WrappedLogger, name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        del logger, name
        return {key: mask(value) for key, value in line.items()}

    return processor


def _route_libraries(first: list[Processor], written: list[Processor]) -> None:
    """What comes through the standard library's logging, from a warning up, in the same form."""
    handler = logging.StreamHandler(sys.stderr)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=first, processors=[remove, *written]))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    # It prints a traceback for every refusal that it raises too, and that is told in words then.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
