"""expctl diagnose: what a machine printed, and what it means."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from expctl.globals import options
from expctl.output import console, emit
from service.domain.errors import UsageError

if TYPE_CHECKING:
    from workers.diagnosis.diagnose import Kind

app = typer.Typer(add_completion=False)
KINDS = "journal|systemctl-show|gpu|metrics|unit|command"
ENGINES = ("auto", "vllm", "sglang", "llamacpp")


@app.command()
def diagnose(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="what was printed; - reads it from stdin")],
    kind: Annotated[
        str | None, typer.Option("--as", metavar="KIND", help=f"{KINDS} (default: a paste of anything, each part by its looks)")
    ] = None,
    engine: Annotated[str, typer.Option(metavar="KIND", help="auto|vllm|sglang|llamacpp")] = "auto",
    before: Annotated[Path | None, typer.Option(metavar="FILE", help="an earlier Prometheus page, to take the difference from")] = None,
    status: Annotated[int | None, typer.Option(metavar="N", help="exit status of the GPU tool that printed it")] = None,
) -> None:
    """State, phase, cause and remedy out of logs, unit states, GPU tools, counters and commands. Needs no service."""
    asked = _asked(kind, engine, before, status)
    known = None if engine == "auto" else engine
    earlier = None if before is None else _text(before)
    if file == "-":
        answer = _answer(sys.stdin.buffer, asked, known, earlier, status)
    else:
        try:
            with Path(file).open("rb") as stream:
                answer = _answer(stream, asked, known, earlier, status)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UsageError(f"{file} cannot be read", why, "give the path of a readable file, or - for stdin") from None
    if options.json:
        emit(answer)
        return
    from expctl.views.diagnosis import draw  # noqa: PLC0415 - only for people

    draw(console(), answer)


def _asked(kind: str | None, engine: str, before: Path | None, status: int | None) -> Kind | None:
    from workers.diagnosis.diagnose import Kind  # noqa: PLC0415 - not needed for --help

    if engine not in ENGINES:
        raise UsageError(f"--engine {engine} is not known", "", f"one of {', '.join(ENGINES)}")
    try:
        asked = None if kind is None else Kind(kind)
    except ValueError:
        raise UsageError(f"--as {kind} is not known", "", f"one of {KINDS.replace('|', ', ')}") from None
    if before is not None and asked not in {None, Kind.METRICS}:
        raise UsageError("--before is for Prometheus pages", f"and not for --as {kind}", "leave it out, or use --as metrics")
    if status is not None and asked is not Kind.GPU:
        raise UsageError("--status is for --as gpu", "a pasted command says its status itself (`exit status: N`)", "add --as gpu")
    return asked


def _answer(stream: BinaryIO, asked: Kind | None, engine: str | None, before: str | None, status: int | None) -> dict[str, Any]:
    from workers.diagnosis.diagnose import MOST_PASTE_BYTES, Kind, diagnose_as, diagnose_journal, diagnose_paste  # noqa: PLC0415 - as above
    from workers.diagnosis.stream import Ahead, read_stream  # noqa: PLC0415 - as above

    if asked is Kind.JOURNAL:
        return diagnose_journal(read_stream(stream, engine))
    start = stream.read(MOST_PASTE_BYTES + 1)
    # A GPU tool may die without a word, and a page may be empty: that is an answer too.
    if not start.strip() and asked not in {Kind.GPU, Kind.METRICS}:
        raise UsageError("there is nothing to diagnose", "the input is empty", "paste what the machine printed")
    if len(start) > MOST_PASTE_BYTES:
        if asked is None:
            return diagnose_journal(read_stream(Ahead(start, stream), engine))
        raise UsageError(
            f"the input is longer than {MOST_PASTE_BYTES >> 20} MiB", f"too long for --as {asked}", "give the part that matters"
        )
    text = start.decode("utf-8", "replace")
    if asked is None:
        return diagnose_paste(text, engine, before)
    return diagnose_as(asked, text, engine, before, status)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path} cannot be read", why, "give the path of a readable file") from None
