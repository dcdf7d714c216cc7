"""Experiments that fork a unit: what may be written, and which hash they have."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.engine_spec import VllmEngine
from service.domain.errors import SpecError
from service.domain.hashing import engine_hash, spec_hash
from service.domain.spec import Spec
from service.domain.specfile import parse
from service.domain.specschema import json_schema


def spec(**engine: Any) -> Spec:
    return Spec.model_validate({"name": "x", "engine": {"kind": "vllm", **engine}})


def test_the_model_is_the_units_unless_it_is_given() -> None:
    [found] = parse("name: x\nengine: {kind: vllm, from_unit: vllm@kimi.service, keep_port: true, user: vllm}\n")
    assert isinstance(found.engine, VllmEngine)
    assert (found.engine.model, found.engine.keep_port, found.engine.user, found.engine.model_id) == (None, True, "vllm", "")
    assert Spec.model_validate(found.model_dump(mode="json")) == found
    # The unit may serve it under any name.
    assert spec(from_unit="a.service", model="m").engine.model_id == ""
    assert spec(from_unit="a.service", served_model_name="s").engine.model_id == "s"
    assert spec(model="m").engine.model_id == "m"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("", "engine.model is missing"),
        (", model: null", "engine.model is missing"),
        (", from_unit: vllm", "engine.from_unit: write the whole name"),
        (", from_unit: vllm@.service", "engine.from_unit: write the whole name"),
        (", from_unit: ../x.service", "engine.from_unit: write the whole name"),
        (", model: m, keep_port: true", "engine.keep_port: only a from_unit"),
        (", from_unit: a.service, port: 1, keep_port: true", "engine.keep_port: port and keep_port exclude"),
        (", from_unit: a.service, args: {port: null}", "engine.port"),
        (", model: m, args: {speculative-config: x}", "engine.speculative"),
        (", model: m, args: {max-model-len: 1, max_model_len: 2}", "max-model-len is there twice"),
    ],
)
def test_what_is_wrong_is_said_once(keys: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"name: x\nengine: {{kind: vllm{keys}}}\n")
    assert said in caught.value.what
    assert len(caught.value.what.splitlines()) == 1


def test_what_a_unit_has_can_be_taken_out() -> None:
    engine = spec(from_unit="a.service", args={"speculative-config": None, "served_model_name": None, "api-key": None}).engine
    assert isinstance(engine, VllmEngine)
    assert set(engine.args.values()) == {None}


def test_hashes_of_before_mean_the_same_still() -> None:
    assert engine_hash(spec(model="m")) == "683d5f14147d5a4c"
    assert engine_hash(spec(model="m", args={"a": 1}, env={"A": "1"}, port=8001, speculative={"method": "ngram"})) == "d004205ababc1495"
    assert engine_hash(Spec.model_validate({"name": "x", "engine": {"kind": "command", "run": ["x"]}})) == "de7a90434231cbe1"
    assert engine_hash(Spec.model_validate({"name": "x", "engine": {"kind": "endpoint", "base_url": "http://a"}})) == "e97e348c295d8e32"


def test_every_new_key_makes_another_configuration() -> None:
    made = [
        spec(model="m"),
        spec(model="m", user="u"),
        spec(model="m", from_unit="a.service"),
        spec(model="m", from_unit="b.service"),
        spec(from_unit="a.service"),
        spec(from_unit="a.service", keep_port=True),
    ]
    assert len({engine_hash(one) for one in made}) == len({spec_hash(one) for one in made}) == len(made)


def test_the_schema_asks_for_a_model_or_a_unit() -> None:
    engine = json_schema()["$defs"]["VllmEngine"]
    assert engine["anyOf"] == [{"required": ["model"]}, {"required": ["from_unit"]}]
    assert {"from_unit", "user", "keep_port"} <= set(engine["properties"])
