"""What the keys of a model mean: the docstrings below its fields, for the schema that editors read and for documents.

Read only when somebody asks. Pydantic could put them into the schema by itself, but would read the sources at every start.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap

from pydantic import BaseModel


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Field -> its docstring as one line; inherited ones included, fields without a docstring left out."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel and not one.__module__.startswith("pydantic"):
            found |= _own(one)
    return {name: text for name, text in found.items() if name in model.model_fields}


@functools.cache
def _own(model: type[BaseModel]) -> dict[str, str]:
    [body] = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    found: dict[str, str] = {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    for field, after in itertools.pairwise(statements):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _text(after)):
            found[field.target.id] = text
    return found


def _text(statement: ast.stmt) -> str:
    """What a docstring says, in one line; empty where the statement is none."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return " ".join(value.value.split()) if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
