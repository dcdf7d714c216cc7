"""expctl compare: a baseline against others, with a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from expctl.client import Client
from expctl.exitcodes import ExitCode
from expctl.globals import options
from expctl.output import draw, emit, say
from service.domain.errors import UsageError

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    base: Annotated[int, typer.Argument(help="the baseline experiment")],
    ids: Annotated[list[int], typer.Argument(help="experiments to compare with it")],
    all_fields: Annotated[bool, typer.Option("--all-fields", help="what the specs have in common, too")] = False,
    fail_if: Annotated[str | None, typer.Option(help="exit 3 if this holds, such as 'tps<-3%' or 'tps@8<-3%'")] = None,
) -> int:
    """Per prompt and overall, only what differs, and how sure the verdict is. Several stand side by side on a wide screen."""
    level = None if fail_if is None else _level(fail_if)
    with Client(options.server) as client:
        found = client.compare(base, ids, all_fields=all_fields)
        _must_be_measured(level, found)
        names = {one: client.experiment(one)["name"] for one in (base, *ids)} if not options.json else {}
    if options.json:
        emit(found if len(found) > 1 else found[0])
    else:
        _draw(found, names)
    return _condition(fail_if, found)


def _draw(found: Sequence[dict[str, Any]], names: dict[int, str]) -> None:
    from expctl.views.comparison import hidden_text, render  # noqa: PLC0415 - drawing is not free

    if len(found) > 1:
        from expctl.views.columns import side_by_side  # noqa: PLC0415 - drawing is not free

        draw(side_by_side(found, names))
    else:
        draw(render(found[0], names[found[0]["baseline"]], names[found[0]["candidate"]]))
    if hidden := hidden_text(found):
        say(hidden)


def _level(fail_if: str) -> int | None:
    from service.domain.condition import parse_condition  # noqa: PLC0415 - only with --fail-if

    return parse_condition(fail_if)[0]


def _must_be_measured(level: int | None, found: Sequence[dict[str, Any]]) -> None:
    """A condition on a level that nobody measured could never be judged. Where nothing at all was, it fails instead."""
    measured = sorted({phase["concurrency"] for one in found for phase in one["bench_phases"]})
    if level is not None and measured and level not in measured:
        levels = ", ".join(map(str, measured))
        raise UsageError(f"--fail-if: concurrency {level} was not measured", f"measured: {levels}", f"write it like tps@{measured[-1]}<-3%")


def _condition(fail_if: str | None, found: Sequence[dict[str, Any]]) -> int:
    if fail_if is None:
        return 0
    from service.domain.condition import fails  # noqa: PLC0415 - only with --fail-if

    failed = [one["candidate"] for one in found if fails(fail_if, one)]
    for one in failed:
        say(f"{one}: fails {fail_if}, or it could not be judged")
    return ExitCode.UNSUCCESSFUL if failed else 0
