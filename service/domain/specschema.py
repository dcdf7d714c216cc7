"""The JSON Schema of the experiment file, which knows a little more than the models: sweeps, durations, prompt files, meanings."""

from __future__ import annotations

from typing import Any

from service.domain.meanings import meanings
from service.domain.spec import Spec
from service.domain.spec_base import SpecModel

DURATION: dict[str, Any] = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|m|h|d)\s*)+$"}],
    "description": "seconds, or a text such as 30m or 1h30m",
}


def json_schema() -> dict[str, Any]:
    """Draft 2020-12, for one document of the file."""
    made = Spec.model_json_schema()
    for model in made["$defs"].values():
        for name, field in model.get("properties", {}).items():
            if name in {"timeout", "stall"}:
                default = {"default": field["default"]} if "default" in field else {}
                model["properties"][name] = DURATION | default
            if name == "env":
                # Whatever is written is taken as a text, so no editor need mind a number.
                field["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    _explain(made)
    prompts = made["$defs"]["Bench"]["properties"]["prompts"]
    prompts["anyOf"].append({"type": "string", "description": "path of a JSONL file, relative to this file"})
    made["properties"]["sweep"] = {
        "type": "object",
        "description": "One experiment per combination: each key, such as engine.args.max-num-seqs, with the list of its values.",
        "additionalProperties": {"type": "array", "minItems": 1},
        "minProperties": 1,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "expctl experiment"} | {
        key: value for key, value in made.items() if key != "title"
    }


def models() -> dict[str, type[SpecModel]]:
    """Every model of the file by its name in the schema."""
    found: list[type[SpecModel]] = []
    waiting: list[type[SpecModel]] = [SpecModel]
    while waiting:
        below = waiting.pop().__subclasses__()
        found += below
        waiting += below
    return {one.__name__: one for one in found}


def _explain(made: dict[str, Any]) -> None:
    """Every key's meaning, which editors show beside it."""
    known = models()
    for name, shape in [*made["$defs"].items(), (Spec.__name__, made)]:
        for key, text in meanings(known[name]).items():
            field = shape["properties"][key]
            further = f" In {DURATION['description']}." if field.get("description") == DURATION["description"] else ""
            field["description"] = text + further
