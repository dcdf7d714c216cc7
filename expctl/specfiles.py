"""Experiment files on this machine: read, changed by --set, prompts put in, ready to be submitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from service.domain.errors import SpecError, UsageError
from service.domain.spec import Spec
from service.domain.specfile import Document, read_documents, validate
from service.domain.sweep import expand


def read(path: str, changes: list[str], sweeps: list[str] | None = None) -> list[Spec]:
    """The experiments of a file (`-`: standard input), with every `--set key=value` and `--sweep key=a,b` applied."""
    _each_key_once(sweeps or [])
    source, data, folder = _data(path)
    documents = read_documents(data, source)
    if not documents:
        raise SpecError(f"{source} is empty", "it holds no experiment", "see the files in examples/")
    for document in documents:
        for change in changes:
            apply(document, change)
        for sweep in sweeps or []:
            add_sweep(document, sweep)
    return [_spec(one, source, folder) for document in documents for one in expand(document, source)]


def _each_key_once(sweeps: list[str]) -> None:
    keys = [sweep.partition("=")[0] for sweep in sweeps]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep {twice} is there twice", "only one of them could count", f"write all values in one: --sweep {twice}=a,b")


def _one_value(text: str, source: str) -> Document:
    """A value as YAML; a text that starts another document holds more than one."""
    documents = read_documents(text, source)
    if len(documents) > 1:
        raise UsageError(f"{source} holds several documents", "a line `---` begins another one", "write one value")
    return documents[0] if documents else Document(None)


def _data(path: str) -> tuple[str, bytes, Path]:
    if path == "-":
        return "standard input", sys.stdin.buffer.read(), Path.cwd()
    file = Path(path)
    try:
        return path, file.read_bytes(), file.parent
    except OSError as error:
        raise UsageError(f"{path} cannot be read", error.strerror or str(error), "give the path of an experiment file") from None


def _spec(document: Document, source: str, folder: Path) -> Spec:
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
    parsed = _one_value(text, f"the value of --set {key}")
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
    here[last] = parsed.value
    path = tuple(key.split("."))
    document.texts = {old: written for old, written in document.texts.items() if old[: len(path)] != path}
    for below, written in parsed.texts.items():
        document.texts[path + below] = written


def add_sweep(document: Document, text: str) -> None:
    """`--sweep engine.args.max-num-seqs=8,16`: adds to the file's own `sweep`."""
    key, equals, values = text.partition("=")
    if not equals or not key or not values:
        raise UsageError(f"--sweep {text} is not of the form key=a,b", "", "write it like --sweep bench.repeat=3,5")
    # The bracket stands in a line of its own, or a comment among the values would swallow it.
    parsed = _one_value(values if values.startswith("[") else f"[{values}\n]", f"the values of --sweep {key}")
    if not isinstance(document.value, dict) or not isinstance(document.value.get("sweep", {}), dict):
        raise UsageError(f"--sweep {key}: the file's own sweep is not a mapping", "", "correct the file")
    document.value.setdefault("sweep", {})[key] = parsed.value
    for index in range(len(parsed.value)):
        for path, written in parsed.texts.items():
            if path[:1] == (index,):
                document.texts["sweep", key, *path] = written
