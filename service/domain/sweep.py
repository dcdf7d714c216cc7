"""Sweeps: one document with `sweep:` becomes one document per combination."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

from service.domain.errors import SpecError
from service.domain.specfile import Document, Path

MOST = 200
_NOT_SWEPT = frozenset({"repeat_load", "recheck_baseline"})


def expand(document: Document, source: str) -> list[Document]:
    """The documents that a document stands for, in the order of the values as written: the last key changes fastest."""
    if not isinstance(document.value, dict) or "sweep" not in document.value:
        return [document]
    line = document.lines.get(("sweep",), 1)
    where = f"{source}, line {line}: sweep"
    axes = _axes(document.value["sweep"], where)
    count = 1
    for _, values in axes:
        count *= len(values)
    loads = document.value.get("repeat_load", 1)
    # Anything else than a whole number is refused where the documents are validated.
    total = count * loads if isinstance(loads, int) else count
    if total > MOST:
        made = f"{total} experiments" if total == count else f"{count} x repeat_load {loads} = {total} experiments"
        raise SpecError(f"{where} makes {made}", f"at most {MOST} at once", "sweep fewer values, or load each less often")
    places = itertools.product(*(range(len(values)) for _, values in axes))
    return [_one(document, axes, chosen, where) for chosen in places]


def _axes(sweep: Any, where: str) -> list[tuple[str, list[Any]]]:
    example = "write it like sweep: {engine.speculative.num_speculative_tokens: [3, 5, 7]}"
    if not isinstance(sweep, dict) or not sweep:
        raise SpecError(f"{where} is not a mapping of keys to lists", "", example)
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise SpecError(f"{where}: {key} has no list of values", "", example)
        if key == "sweep" or key.startswith("sweep."):
            raise SpecError(f"{where}: a sweep cannot be swept", "", example)
        if key in _NOT_SWEPT:
            raise SpecError(f"{where}: {key} cannot be swept", "it says how the same configuration is measured", f"write {key} beside it")
        texts = [plain_text(value) for value in values]
        if len(set(texts)) != len(texts):
            raise SpecError(f"{where}: {key} has a value twice", "", "name each value once")
    return list(sweep.items())


def _one(document: Document, axes: list[tuple[str, list[Any]]], chosen: tuple[int, ...], where: str) -> Document:
    value = copy.deepcopy(document.value)
    del value["sweep"]
    lines, texts = dict(document.lines), dict(document.texts)
    labels = []
    # By place, never by value: 1, 1.0 and true are equal to Python and not to the engine.
    for (key, values), at in zip(axes, chosen, strict=True):
        path = tuple(key.split("."))
        picked = values[at]
        _set(value, path, copy.deepcopy(picked), where)
        # An error in a swept value is an error of the sweep's line.
        lines[path] = document.lines.get(("sweep", key, at), lines.get(("sweep",), 1))
        _copy_texts(document, ("sweep", key, at), path, texts)
        labels.append(f"{path[-1]}={plain_text(picked)}")
    if "name" in value:
        value["name"] = f"{texts.get(('name',), value['name'])} {' '.join(labels)}"
        texts[("name",)] = value["name"]
    return Document(value, lines, texts)


def plain_text(value: Any) -> str:
    """A swept value as it is shown in a name."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _copy_texts(document: Document, source: Path, target: Path, texts: dict[Path, str]) -> None:
    for path, text in document.texts.items():
        if path[: len(source)] == source:
            texts[target + path[len(source) :]] = text


def _set(value: Any, path: tuple[str, ...], picked: Any, where: str) -> None:
    here = value
    for part in path[:-1]:
        if not isinstance(here.get(part), dict):
            if part in here and here[part] is not None:
                raise SpecError(
                    f"{where}: {'.'.join(path)} leads nowhere", f"{part} has no keys below it", "name a key of the experiment file"
                )
            here[part] = {}
        here = here[part]
    here[path[-1]] = picked
