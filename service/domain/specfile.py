"""From the text of an experiment file to specs, with errors that name the line and the nearest known key.

YAML 1.2: `22:00`, `on` and `010` stay what they look like. Where a text is wanted (a name, an environment value), the
scalar's own text counts, so `NCCL_DEBUG: 010` is "010" and `name: 2025` is "2025".
"""

from __future__ import annotations

import difflib
import io
import typing
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from service.domain.engine_spec import CommandEngine, EndpointEngine, VllmEngine
from service.domain.errors import SpecError
from service.domain.llamacpp_spec import LlamacppEngine
from service.domain.refusals import refusal, unusable_number
from service.domain.sglang_spec import SglangEngine
from service.domain.spec import Bench, Load, Prompt, Spec
from service.domain.spec_base import SpecModel

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 40

Path = tuple[str | int, ...]

ENGINE_KINDS: dict[str, type[SpecModel]] = {
    "vllm": VllmEngine,
    "endpoint": EndpointEngine,
    "command": CommandEngine,
    "llamacpp": LlamacppEngine,
    "sglang": SglangEngine,
}


@dataclass
class Document:
    """One YAML document as plain values, with where each stood and how each scalar was written."""

    value: Any
    lines: dict[Path, int] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)


def parse(text: str | bytes, source: str = "the file") -> list[Spec]:
    """Every experiment in a file, in order. Raises SpecError for anything that is not exactly right."""
    documents = read_documents(text, source)
    if not documents:
        raise SpecError(f"{source} is empty", "it holds no experiment", "see `expctl submit --help` and the examples")
    return [validate(document, source) for document in documents]


def read_documents(text: str | bytes, source: str) -> list[Document]:
    """YAML documents as plain values, bounded in size, depth and number of nodes."""
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MAX_BYTES:
        raise SpecError(
            f"{source} is too large",
            f"{len(data):,} bytes; an experiment file has at most {MAX_BYTES:,}",
            "put long prompts into a JSONL file",
        )
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{source} is not text", f"byte {error.start} is not UTF-8", "an experiment file is YAML in UTF-8") from None
    try:
        # Nodes, not values: they carry the line and the text of each scalar.
        nodes = [node for node in YAML(typ="safe", pure=True).compose_all(io.StringIO(decoded)) if node is not None]
        return [_Builder(source).build(node) for node in nodes]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}, line {mark.line + 1}" if mark else source
        raise SpecError(f"{where}: not YAML", str(error.problem or error.context), "mind indentation, quotes and tabs") from None
    except (YAMLError, RecursionError, ValueError) as error:
        raise SpecError(
            f"{source}: not YAML", str(error).splitlines()[0] if str(error) else "nested too deeply", "mind indentation, quotes and tabs"
        ) from None


class _Builder:
    """Plain values from YAML nodes, counting as it goes so that aliases cannot blow up."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.nodes = 0
        self.document = Document(None)

    def build(self, node: Node) -> Document:
        self.document.value = self._value(node, ())
        return self.document

    def _value(self, node: Node, path: Path) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise SpecError(
                f"{self.source} expands to too much",
                f"more than {MAX_NODES:,} values, or nested deeper than {MAX_DEPTH}",
                "use fewer aliases",
            )
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(typing.cast(ScalarNode, node), path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                raise SpecError(
                    f"{self.source}, line {line}: a key must be a word",
                    "this one is a list or a mapping",
                    "quote it if it is meant as text",
                )
            key = str(key_node.value)
            if key in result:
                raise SpecError(f"{self.source}, line {line}: {key} is there twice", "only one of them could count", "remove one")
            self.document.lines[(*path, key)] = line
            result[key] = self._value(value_node, (*path, key))
        return result

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        text = str(node.value)
        self.document.texts[path] = text
        tag = str(node.tag).rsplit(":", 1)[-1]
        if node.style is not None and tag == "str":
            return text
        return _plain_value(text, tag)


def _plain_value(text: str, tag: str) -> Any:
    """A scalar by the YAML 1.2 core schema. A number keeps its own text unless it reads back the same."""
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true" if text.lower() in {"true", "false"} else text
    if tag in {"int", "float"}:
        for number in (int, float):
            try:
                value = number(text)
            except ValueError:
                continue
            return value if str(value) == text else _Written(text, value)
    return text


class _Written(str):
    """A number whose text is not the shortest one (`0.90`, `010`): text where text will do, else the number."""

    number: int | float
    __slots__ = ("number",)

    def __new__(cls, text: str, number: float) -> Self:
        made = super().__new__(cls, text)
        made.number = number
        return made

    def __getnewargs__(self) -> tuple[str, float]:  # type: ignore[override]  # a copy needs both
        return str(self), self.number


def validate(document: Document, source: str = "the file") -> Spec:
    """A spec from plain values; SpecError lists every mistake with its line."""
    _refuse_unusable_text(document.value, source)
    value = _settle_numbers(document.value, ())
    if not isinstance(value, dict):
        raise SpecError(
            f"{source} holds no experiment", "an experiment is a mapping of keys such as name, host, engine", "see the examples"
        )
    for _ in range(2):
        try:
            return _usable(Spec.model_validate(value), document, source)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=True)
            if not _use_text(value, problems, document.texts):
                break
    raise SpecError(
        "\n".join(_sentence(problem, document, source) for problem in problems), "", "see `expctl schema` for every key and its type"
    )


def _usable(spec: Spec, document: Document, source: str) -> Spec:
    """The spec, unless a number stands in it that could not be passed on: free-form keys take whatever is written."""
    found = unusable_number(spec.model_dump(include={"engine", "bench"}))
    if found is not None:
        path, what = found
        where = f"{source}, line {_line(path, document)}: {'.'.join(map(str, path))}"
        raise SpecError(f"{where}: {what}", "", "correct it, or write it as a text")
    return spec


def _refuse_unusable_text(value: Any, source: str) -> None:
    """A NUL ends a text for every program, and half a surrogate pair is no character at all."""
    if isinstance(value, str):
        if "\0" in value or any("\ud800" <= sign <= "\udfff" for sign in value):
            raise SpecError(f"{source}: {value!r:.60} holds a NUL or half a character", "no program could be given it", "remove it")
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_unusable_text(key, source)
            _refuse_unusable_text(item, source)
    elif isinstance(value, list):
        for item in value:
            _refuse_unusable_text(item, source)


def _settle_numbers(value: Any, path: Path) -> Any:
    """Text stays text inside args and env, where it is passed on; elsewhere `010` is the number 10."""
    if isinstance(value, _Written):
        return str(value) if path[:2] in {("engine", "args"), ("engine", "env")} else value.number
    if isinstance(value, dict):
        return {key: _settle_numbers(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_settle_numbers(item, (*path, index)) for index, item in enumerate(value)]
    return value


def _use_text(value: Any, problems: list[ErrorDetails], texts: dict[Path, str]) -> bool:
    """Where a text was wanted and a scalar was written, take the scalar's text. True if anything changed."""
    changed = False
    for problem in problems:
        path = _plain_path(problem["loc"], value)
        if problem["type"] == "string_type" and texts.get(path) and isinstance(problem["input"], bool | int | float):
            parent = value
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = texts[path]
            changed = True
    return changed


def _plain_path(loc: tuple[str | int, ...], value: Any) -> Path:
    """A validation error's location without the names of union branches that pydantic puts in between."""
    path: list[str | int] = []
    here = value
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        if isinstance(here, dict) and (part in here or (last and isinstance(part, str) and "[" not in part)):
            path.append(part)
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


def _sentence(problem: ErrorDetails, document: Document, source: str) -> str:
    path = _plain_path(problem["loc"], document.value)
    dotted = ".".join(str(part) for part in path) or "the experiment"
    where = f"{source}, line {_line(path, document)}: "
    if problem["type"] == "extra_forbidden":
        return where + _unknown_key(path, document.value)
    if problem["type"] == "missing":
        return where + f"{dotted} is missing"
    if problem["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        return where + f"engine.kind must be one of {', '.join(ENGINE_KINDS)}"
    shown = problem["input"]
    got = f" (it is {shown!r:.60})" if isinstance(shown, str | int | float | bool) or shown is None else ""
    return where + f"{dotted}: {refusal(typing.cast(dict[str, Any], problem))}{got}"


def _line(path: Path, document: Document) -> int:
    """The line of a place, or of the nearest one around it."""
    return next((document.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in document.lines), 1)


def _unknown_key(path: Path, value: Any) -> str:
    key = str(path[-1])
    known = list(known_keys(path[:-1], value))
    close = difflib.get_close_matches(key.replace("-", "_"), known, n=1, cutoff=0.5)
    here = ".".join(str(part) for part in path[:-1])
    place = f"in {here}" if here else "at the top"
    hint = f"did you mean {close[0]}?" if close else f"known {place}: {', '.join(known)}"
    return f"unknown key {key} {place}; {hint}"


def known_keys(path: Path, value: Any) -> tuple[str, ...]:
    """The keys that may stand at a place of the file."""
    if path[:1] == ("engine",):
        engine = value.get("engine") if isinstance(value, dict) else None
        kind = engine.get("kind") if isinstance(engine, dict) else None
        model: type[SpecModel] = ENGINE_KINDS.get(str(kind), VllmEngine)
    elif path[:2] == ("bench", "prompts"):
        model = Prompt
    else:
        model = typing.cast(type[SpecModel], {"load": Load, "bench": Bench}.get(str(path[0])) if path else Spec) or Spec
    return tuple(model.model_fields)
