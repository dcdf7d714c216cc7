"""The keys of the experiment file, from its JSON Schema and its models."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from docs.generate.markdown import paragraph, sentence, table
from service.domain.meanings import meanings
from service.domain.spec import Spec
from service.domain.specschema import DURATION, json_schema, models

Json = Mapping[str, Any]

HEAD = ("key", "what may stand there", "default", "meaning")
_PLAIN = {"boolean": "true or false", "string": "text", "object": "mapping", "null": "null"}
_DURATION_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def spec_keys() -> str:
    """What may stand at the top."""
    return table(HEAD, _rows(Spec.__name__))


def engines() -> str:
    """A section for each kind of engine, with what may stand below its keys."""
    schema = _schema()
    kinds = schema["properties"]["engine"]["discriminator"]["mapping"]
    found = [(kind, _named(reference)) for kind, reference in kinds.items()]
    # Those that are started and measured stand first.
    found.sort(key=lambda one: ("port" not in _shape(one[1])["properties"], one[0] != "vllm"))
    return "\n".join(_kind(kind, model) for kind, model in found)


def _kind(kind: str, model: str) -> str:
    parts = [f"### kind: {kind}\n", paragraph(sentence(_about(model))) + "\n", table(HEAD, _rows(model))]
    for key, field in _shape(model)["properties"].items():
        below = next((_named(one["$ref"]) for one in _branches(field) if "$ref" in one), None)
        if below is not None:
            parts += [paragraph(f"`engine.{key}` of {kind}: {_about(below)}") + "\n", table(HEAD, _rows(below))]
    return "\n".join(parts)


def _about(model: str) -> str:
    paragraphs = (models()[model].__doc__ or "").split("\n\n")
    return " ".join(" ".join(paragraphs).split())


@functools.cache
def _schema() -> dict[str, Any]:
    return json_schema()


def _shape(model: str) -> Json:
    schema = _schema()
    found: Json = schema if model == Spec.__name__ else schema["$defs"][model]
    return found


def _named(reference: str) -> str:
    return reference.rsplit("/", 1)[-1]


def _rows(model: str) -> Iterator[tuple[str, str, str, str]]:
    shape, made = _shape(model), models()[model]
    texts = meanings(made)
    for key, field in shape["properties"].items():
        meaning = texts.get(key) or field.get("description", "")
        yield f"`{key}`", _words(field), _default(made, key, field, required=key in shape.get("required", ())), meaning


def _branches(field: Json) -> list[Json]:
    if "discriminator" in field:
        return [{"type": "object"}]
    for several in ("anyOf", "oneOf"):
        if several in field:
            return [one for one in field[several] if one.get("type") != "null"]
    return [field]


def _words(field: Json) -> str:
    """Such as `whole number, 1 to 1000`, `list of texts`, `true or false`."""
    if _is_duration(field):
        return "duration"
    branches = [_word(one, inner=one is not field) for one in _branches(field)]
    return " or ".join(dict.fromkeys(branches))


def _word(one: Json, *, inner: bool) -> str:
    kind = str(one.get("type"))
    if "const" in one or "enum" in one:
        return " or ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
    if kind == "array":
        return f"list of {_several(_words(one['items']))}" if one.get("items") else "list"
    if kind in {"integer", "number"}:
        return ("whole number" if kind == "integer" else "number") + _range(one)
    if kind == "string" and inner and "description" in one:
        return str(one["description"])
    return "mapping" if "$ref" in one else _PLAIN.get(kind, "anything")


def _several(words: str) -> str:
    return re.sub(r"\b(whole number|number|text|mapping)\b", r"\1s", words)


def _is_duration(field: Json) -> bool:
    return bool(field.get("anyOf") == DURATION["anyOf"])


def _range(one: Json) -> str:
    least, most = one.get("minimum"), one.get("maximum")
    if least is not None and most is not None:
        return f", {least:,} to {most:,}"
    return f", at least {least:,}" if least is not None else ""


def _default(model: type[BaseModel], key: str, field: Json, *, required: bool) -> str:
    if required:
        return "must be given"
    made = model.model_fields[key].get_default(call_default_factory=True, validated_data={}) if key in model.model_fields else None
    if made is None:
        return ""
    if isinstance(made, BaseModel):
        return "as below"
    return f"`{_length(made) if _is_duration(field) else json.dumps(made) if not isinstance(made, str) else made}`"


def _length(seconds: float) -> str:
    unit, size = next((unit, size) for unit, size in _DURATION_UNITS if seconds % size == 0)
    return f"{seconds / size:.0f}{unit}"


BLOCKS: dict[str, Callable[[], str]] = {
    "spec-keys": spec_keys,
    "engines": engines,
    "load-keys": lambda: table(HEAD, _rows("Load")),
    "bench-keys": lambda: table(HEAD, _rows("Bench")),
    "prompt-keys": lambda: table(HEAD, _rows("Prompt")),
}
