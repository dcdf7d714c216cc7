"""Experiment files on this machine: read, changed by --set, prompts put in, ready to be submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from service.domain.errors import SpecError, UsageError
from service.domain.spec import Spec
from service.domain.specfile import Document, read_documents, validate


def read(path: str, changes: list[str]) -> list[Spec]:
    """The experiments of a file (`-`: standard input), with every `--set key=value` applied."""
    source, data, folder = _data(path)
    documents = read_documents(data, source)
    if not documents:
        raise SpecError(f"{source} is empty", "it holds no experiment", "see the files in examples/")
    return [_spec(document, source, folder, changes) for document in documents]


def _data(path: str) -> tuple[str, bytes, Path]:
    if path == "-":
        return "standard input", sys.stdin.buffer.read(), Path.cwd()
    file = Path(path)
    try:
        return path, file.read_bytes(), file.parent
    except OSError as error:
        raise UsageError(f"{path} cannot be read", error.strerror or str(error), "give the path of an experiment file") from None


def _spec(document: Document, source: str, folder: Path, changes: list[str]) -> Spec:
    for change in changes:
        apply(document, change)
    value = document.value
    bench = value.get("bench") if isinstance(value, dict) else None
    if isinstance(bench, dict) and isinstance(bench.get("prompts"), str) and bench["prompts"] != "five":
        bench["prompts"] = _prompts(folder / bench["prompts"])
    return validate(document, source)


def _prompts(path: Path) -> list[dict[str, Any]]:
    from workers.bench.prompts import load_prompts  # noqa: PLC0415 - only for files with prompts of their own

    return [prompt.model_dump(exclude_none=True) for prompt in load_prompts(path)]


def apply(document: Document, change: str) -> None:
    """`--set bench.repeat=3`: the value is read as YAML."""
    key, equals, text = change.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {change} is not of the form key=value", "", "write it like --set bench.repeat=3")
    parsed = read_documents(text, f"the value of --set {key}")
    here = document.value
    *parents, last = key.split(".")
    for part in parents:
        if not isinstance(here, dict):
            raise UsageError(f"--set {key}: {part} has no keys below it", "", "see `expctl schema`")
        if not isinstance(here.get(part), dict):
            here[part] = {}
        here = here[part]
    if not isinstance(here, dict):
        raise UsageError(f"--set {key} leads nowhere", "", "name a key of the experiment file")
    here[last] = parsed[0].value if parsed else None
