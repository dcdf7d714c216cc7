"""Submissions that are refused, and what their answers name."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.integration.api.service import Api, problem, spec


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ({"nam": "x"}, "unknown key nam at the top; did you mean name?"),
        ({"bench": {"concurency": [1]}}, "unknown key concurency in bench; did you mean concurrency?"),
        ({"engine": {"kind": "vllm", "model": "m", "arg": {}}}, "unknown key arg in engine; did you mean args?"),
        ({"priority": "5"}, "priority: must be a whole number (it is '5')"),
        ({"engine": {"kind": "vllm", "model": "m", "api_key": "sk"}}, "engine.api_key: write a reference such as env:VLLM_API_KEY"),
        ({"bench": {"repeat": 0}}, "bench.repeat: must be 1 or more (it is 0)"),
        ({"baseline": 77}, "baseline 77 does not exist"),
        ({"baseline": 2**70}, f"baseline {2**70} does not exist"),
        ({"after": [-1]}, "after: -1 does not exist"),
        ({"after": [2**40]}, f"after: {2**40} does not exist"),
        ({"name": " "}, "name: must be one line of text with something to see in it (it is ' ')"),
        ({"name": "a\nb"}, "name: must be one line of text with something to see in it"),
        ({"not_before": "25:00"}, "not_before: write a time such as 22:00 or 2026-12-01T22:00 (it is '25:00')"),
        ({"engine": {"kind": "endpoint", "base_url": "x"}}, "engine.base_url: write it like http://127.0.0.1:8000/v1 (it is 'x')"),
        ({"engine": {"kind": "vllm", "model": "m", "args": {"a": math.nan}}}, "engine.args.a: nan is no number that could be passed on"),
        ({"engine": {"kind": "vllm", "model": "m", "args": {"a": [-math.inf]}}}, "engine.args.a.0: -inf is no number"),
        ({"engine": {"kind": "vllm", "model": "m", "args": {"a": 2**64}}}, "engine.args.a: has more than 64 bits"),
        ({"engine": {"kind": "vllm", "model": "m", "speculative": {"x": {"y": math.inf}}}}, "engine.speculative.x.y: inf is no number"),
        ({"bench": {"extra_body": {"seed": -(2**63) - 1}}}, "bench.extra_body.seed: has more than 64 bits"),
        ({"bench": {"prompts": [{"id": "a", "messages": [{"x": math.nan}]}]}}, "bench.prompts.0.messages.0.x: nan is no number"),
        ({"name": "\ud800"}, "the request: '\\ud800' holds a NUL or half a character"),
    ],
)
def test_a_mistake_is_named_without_a_line(api: Api, body: dict[str, Any], title: str) -> None:
    found = problem(api.post_text("/v1/experiments", json.dumps({**spec(), **body})), 422, "invalid-experiment")
    assert found["title"].startswith(title)
    assert "the request, line" not in found["title"]
    assert api.get("/v1/experiments").json()["items"] == []


def test_every_mistake_is_named_at_once(api: Api) -> None:
    found = problem(api.post("/v1/experiments", {"nam": "x", "bench": {"repeat": "3"}}), 422, "invalid-experiment")
    for words in ("unknown key nam", "engine is missing", "name is missing", "bench.repeat"):
        assert words in found["title"]
    assert "line 1" not in found["title"]
    assert found["todo"] == "see `expctl schema` for every key and its type"


def test_one_mistake_in_a_list_queues_nothing(api: Api) -> None:
    problem(api.post("/v1/experiments", [spec(), spec(nam="y")]), 422, "invalid-experiment")
    assert api.get("/v1/experiments").json()["items"] == []


@pytest.mark.parametrize("body", [3, "x", None, True])
def test_what_is_no_mapping_is_no_experiment(api: Api, body: Any) -> None:
    answer = api.post_text("/v1/experiments", json.dumps(body))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_no_experiment_at_all(api: Api) -> None:
    assert problem(api.post("/v1/experiments", []), 422, "invalid-input")["title"] == "the request holds 0 experiments"


@pytest.mark.parametrize("headers", [{}, {"idempotency-key": "k"}])
def test_nested_without_end_is_refused(api: Api, headers: dict[str, str]) -> None:
    deep = '{"name":"x","engine":{"kind":"vllm","model":"m","args":{"a":' + "[" * 400 + "]" * 400 + "}}}"
    answer = api.ask("POST", "/v1/experiments", content=deep.encode(), headers={"content-type": "application/json", **headers})
    found = problem(answer, 422, "invalid-experiment")
    assert found["title"] == "the request is nested too deeply"


@pytest.mark.parametrize(
    ("sent", "what"), [("{", "body.1: is not JSON: Expecting property name enclosed in double quotes"), ("", "body: is missing")]
)
def test_a_body_that_is_no_json(api: Api, sent: str, what: str) -> None:
    found = problem(api.post_text("/v1/experiments", sent), 422, "invalid-input")
    assert found["detail"] == what
    assert found["errors"] == [dict(zip(("where", "what"), what.split(": ", 1), strict=True))]


@pytest.mark.parametrize("body", [b'{"name": ' + b"9" * 5000 + b"}", b'{"name": "\xff"}'])
def test_a_body_that_cannot_be_read(api: Api, body: bytes) -> None:
    answer = api.ask("POST", "/v1/experiments", content=body, headers={"content-type": "application/json"})
    assert problem(answer, 422, "invalid-input")["title"] == "the request's body cannot be read"


def test_the_largest_numbers_that_programs_know_are_passed_on(api: Api) -> None:
    args = {"a": 2**64 - 1, "b": -(2**63)}
    made = api.submit(engine={"kind": "vllm", "model": "m", "args": args})
    assert made["spec"]["engine"]["args"] == args


def test_half_a_character_is_refused_with_a_key_too(api: Api) -> None:
    body = json.dumps(spec(name="\ud800")).encode()
    answer = api.ask("POST", "/v1/experiments", content=body, headers={"content-type": "application/json", "idempotency-key": "k"})
    problem(answer, 422, "invalid-experiment")


def test_an_unknown_host_is_named_with_the_known_ones(api: Api) -> None:
    found = problem(api.post("/v1/experiments", spec(host="gpu-9")), 422, "invalid-experiment")
    assert (found["title"], found["detail"]) == ("host gpu-9 is not known", "known: local")
