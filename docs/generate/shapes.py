"""What `--json` prints: the fields of each verb's answer, and the keys of the objects within."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel

from docs.generate.markdown import table
from expctl.fields import OF_VERB, PLAN
from service.api import nightviews, schemas
from service.domain import comparison, effect, measurement, percentiles, prompt_rows, speculation
from service.domain.events import Event
from workers.diagnosis.diagnose import Kind, diagnose_as

OBJECTS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("a phase of `bench`", measurement.PhaseResult),
    ("a request of it", measurement.RequestResult),
    ("its summary", measurement.PhaseSummary),
    ("`ttft_ms` and its like", measurement.Distribution),
    ("speculation", speculation.Speculation),
    ("the client of `bench`", measurement.BenchClient),
    ("a phase of `results`", schemas.PhaseOut),
    ("a request of it", schemas.RequestOut),
    ("a step of `show`", schemas.StepOut),
    ("a phase of `compare`", comparison.PhaseComparison),
    ("its effect", effect.Effect),
    ("a prompt of it", prompt_rows.PromptRow),
    ("a figure of its `percentiles`", percentiles.Percentiles),
    ("a host of `timeline`", nightviews.LaneOut),
    ("an experiment of it", nightviews.BarOut),
    ("a step of it", nightviews.SpanOut),
    ("an experiment of `report`", nightviews.ReportedOut),
    ("a cause of `report`", nightviews.FailureOut),
    ("an event", Event),
)

PRINTED = {
    Kind.JOURNAL: "INFO 12-01 02:06:00 [api_server.py:1] vLLM API server version 0.32.0\n",
    Kind.SYSTEMCTL_SHOW: "ActiveState=active\nSubState=running\n",
    Kind.GPU: "index, memory.used [MiB], memory.total [MiB]\n0, 4 MiB, 81559 MiB\n",
    Kind.METRICS: (
        "vllm:spec_decode_num_drafts_total 10\nvllm:spec_decode_num_draft_tokens_total 30\nvllm:spec_decode_num_accepted_tokens_total 20\n"
    ),
    Kind.UNIT: "[Service]\nExecStart=/bin/true\n",
    Kind.COMMAND: "$ true\nexit status: 0\nstdout:\nstderr:\n",
}
"""Something of each kind, so that an answer to it has every key of that kind."""


def keys(model: type[BaseModel]) -> list[str]:
    """As JSON has them."""
    return [field.serialization_alias or name for name, field in model.model_fields.items()]


def diagnosed(kind: Kind) -> list[str]:
    """The keys of an answer of `diagnose --as KIND`."""
    return list(diagnose_as(kind, PRINTED[kind], None, None, 0 if kind is Kind.GPU else None))


def _named(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def verbs() -> str:
    """A row a verb; those with the same fields share one."""
    shapes: dict[tuple[str, ...], list[str]] = {}
    for verb, names in (*OF_VERB.items(), ("submit --dry-run", PLAN)):
        shapes.setdefault(names, []).append(verb)
    return table(("verb", "fields"), [(_named(found), _named(names)) for names, found in shapes.items()])


def objects() -> str:
    """A row a kind of object."""
    return table(("object", "keys"), [(what, _named(keys(model))) for what, model in OBJECTS])


def diagnoses() -> str:
    """A row a kind of input."""
    return table(("KIND", "keys"), [(f"`{kind}`", _named(diagnosed(kind))) for kind in Kind])


BLOCKS: dict[str, Callable[[], str]] = {"json-verbs": verbs, "json-objects": objects, "json-diagnose": diagnoses}
