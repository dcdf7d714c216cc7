"""/docs: every operation on one page, made from the OpenAPI document; it loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

Json = Mapping[str, Any]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}h3{margin:1.6rem 0 .2rem}code{font:.9em ui-monospace,monospace;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:.4rem 0}td,th{padding:.15rem 1.2rem .15rem 0;text-align:left;vertical-align:top}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}a{color:#8ab4f8}h2{border-color:#444}}
"""


@router.get("/docs")
def docs(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(page(request.app.openapi()), headers={"content-security-policy": POLICY})


def page(document: Json) -> str:
    """An OpenAPI document as HTML."""
    groups: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation))
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    contents = " · ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in [*groups, "shapes"])
    body = "".join(f'<h2 id="{escape(name)}">{escape(name)}</h2>{"".join(items)}' for name, items in groups.items())
    shapes = "".join(_shape(name, shape) for name, shape in document["components"]["schemas"].items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
        f'<p>{contents} · <a href="/openapi.json">openapi.json</a> for programs</p>'
        f"<p>Every error is a {_reference('Problem')} of the type <code>application/problem+json</code>.</p>"
        f'{body}<h2 id="shapes">shapes</h2>{shapes}</html>'
    )


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation.get('description', ''))}</p>"]
    rows = [
        (_place(one["name"], one["in"], required=one.get("required", False)), _type(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {})
    for kind, content in body.get("content", {}).items():
        schema = content["schema"]
        rows.append((_place("body", kind, required=body.get("required", False)), _type(schema), schema.get("description", "")))
    for status, answer in operation["responses"].items():
        if status != "default":
            shapes = [_type(content.get("schema", {})) for content in answer.get("content", {}).values()]
            rows.append((f"answer {escape(status)}", " or ".join(shapes), answer["description"].removeprefix("Successful Response")))
    return "".join([*parts, _table(rows)])


def _place(name: str, where: str, *, required: bool) -> str:
    return f"{escape(name)} <small>({escape(where)}{', required' if required else ''})</small>"


def _shape(name: str, shape: Json) -> str:
    rows = [(escape(key), _type(field), field.get("description", "")) for key, field in shape.get("properties", {}).items()]
    values = ", ".join(f"<code>{escape(str(value))}</code>" for value in shape.get("enum", ()))
    text = f"<p>{escape(shape.get('description', ''))}</p>"
    return f'<h3 id="shape-{escape(name)}">{escape(name)}</h3>{text}{values}{_table(rows)}'


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = "".join(f"<tr><td><code>{name}</code><td>{kind}<td>{escape(text)}" for name, kind, text in rows)
    return f"<table>{lines}</table>" if rows else ""


def _type(schema: Json) -> str:
    """Such as `integer`, `list of Event`, `string or null`."""
    if "$ref" in schema:
        return _reference(schema["$ref"].rsplit("/", 1)[-1])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[several]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    return escape(str(schema.get("type", "anything")))


def _reference(name: str) -> str:
    return f'<a href="#shape-{escape(name)}">{escape(name)}</a>'
