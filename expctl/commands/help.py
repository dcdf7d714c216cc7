"""expctl help: verbs, and topics that belong to no single one."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from expctl.topics import TOPICS, text
from expctl.views.terms import screen
from service.domain.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command(name="help")
def explain(
    about: Annotated[list[str] | None, typer.Argument(metavar="[VERB|TOPIC]", help=f"a verb, or one of: {', '.join(TOPICS)}")] = None,
) -> int:
    """What there is; more of a verb, as its --help says it; or a topic that belongs to no single verb."""
    from expctl.main import VERBS, run, usage  # noqa: PLC0415 - it imports this module, when it is asked for

    first, *rest = about or [""]
    verbs = [verb for group in VERBS.values() for verb in group]
    if not first:
        print(usage())
    elif first in TOPICS and not rest:
        print(text(first, screen()))
    elif first in verbs:
        return run([first, *rest, "--help"])
    else:
        raise _unknown(first if first not in TOPICS else " ".join(about or ()), verbs)
    return 0


def _unknown(name: str, verbs: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, [*TOPICS, *verbs], n=1)
    todo = f"did you mean `expctl help {close[0]}`?" if close else f"topics: {', '.join(TOPICS)}; verbs: expctl help"
    return UsageError(f"there is no verb and no topic {name}", "", todo)
