"""The JSON Schema of the experiment file, which knows a little more than the models: sweeps, durations, prompt files."""

from __future__ import annotations

from typing import Any

from service.domain.spec import Spec

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
    prompts = made["$defs"]["Bench"]["properties"]["prompts"]
    prompts["anyOf"].append({"type": "string", "description": "path of a JSONL file, relative to this file"})
    made["properties"]["sweep"] = {
        "type": "object",
        "description": "one experiment per combination",
        "additionalProperties": {"type": "array", "minItems": 1},
        "minProperties": 1,
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "expctl experiment"} | {
        key: value for key, value in made.items() if key != "title"
    }
