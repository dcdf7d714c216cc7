"""Scopes, tokens as text, and what in an experiment counts as code."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.access import LADDER, Access, Scope, covers
from service.domain.engine_spec import EndpointEngine, VllmEngine
from service.domain.errors import Forbidden
from service.domain.runcode import PLAIN_KEYS, WORDS, code_in
from service.domain.spec import Spec
from service.domain.tokentext import digest, make, shown, well_formed

BOB = Access("bob", frozenset({Scope.SUBMIT}), 7, "laptop")


def test_the_ladder() -> None:
    assert [one.value for one in LADDER] == ["read", "submit", "run-code", "admin"]
    assert [[covers([one], other) for other in LADDER] for one in LADDER] == [[index <= rung for index in range(4)] for rung in range(4)]
    assert not covers([], Scope.READ)


def test_a_refusal_says_what_is_missing_what_there_is_and_what_to_do() -> None:
    with pytest.raises(Forbidden) as refused:
        BOB.require(Scope.ADMIN)
    assert refused.value.lines() == [
        "this needs the scope admin",
        "the token laptop has: submit",
        "ask an admin for a token with it: expctl token create NAME --owner bob --scope admin",
    ]
    BOB.require(Scope.READ)


def test_ones_own_and_somebody_elses() -> None:
    BOB.require_own("bob", "experiment 1")
    Access.local("whoever").require_own("bob", "experiment 1")
    with pytest.raises(Forbidden, match="experiment 1 belongs to ann"):
        BOB.require_own("ann", "experiment 1")


def test_a_token_is_one_word_that_knows_when_it_is_mistyped() -> None:
    token = make()
    assert len(token) == 56
    assert token.startswith("expctl_")
    assert token.isascii()
    assert well_formed(token)
    wrong = [token[:place] + ("a" if token[place] != "a" else "b") + token[place + 1 :] for place in range(len(token))]
    assert not any(map(well_formed, [*wrong, token[:-1], f"{token}a", f" {token}", "", token.upper()]))
    assert len({make() for _ in range(100)}) == 100


def test_what_is_kept_of_a_token() -> None:
    token = make()
    assert digest(token) == digest(token) != digest(make())
    assert len(digest(token)) == 64
    assert len(shown(token)) == 13, "six letters of 43 leave 220 bits to be guessed"


def code(**engine: Any) -> list[str]:
    return code_in(Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "org/m"} | engine}))


@pytest.mark.parametrize(
    "engine",
    [
        {},
        {"from_unit": "vllm.service", "keep_port": True},
        {"gpus": [0, 1], "port": 8002, "api_key": "env:KEY", "served_model_name": "kimi"},
        {"args": {"max-model-len": 131072, "enable-prefix-caching": False, "dtype": "bfloat16", "max_num_seqs": "8", "seed": None}},
        {"args": {"cudagraph-capture-sizes": [1, 2, 4], "reasoning-parser": "kimi_k2", "trust-remote-code": None}},
        {"speculative": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}},
        {"speculative": {"method": "eagle3", "model": "/models/head", "num_speculative_tokens": 3}},
        {"env": {"NCCL_ALGO": "Ring", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,garbage_collection_threshold:0.8"}},
    ],
)
def test_tuning_is_no_code(engine: dict[str, Any]) -> None:
    assert code(**engine) == []


@pytest.mark.parametrize(
    ("engine", "found"),
    [
        ({"executable": "/srv/vllm"}, "engine.executable"),
        ({"user": "root"}, "engine.user"),
        ({"cwd": "/srv/mine"}, "engine.cwd"),
        ({"model": "--config=/srv/x.yaml"}, "engine.model"),
        ({"served_model_name": "--trust-remote-code"}, "engine.served_model_name"),
        ({"args": {"trust-remote-code": True}}, "engine.args.trust-remote-code"),
        ({"args": {"trust_remote_code": False}}, "engine.args.trust_remote_code"),
        ({"args": {"worker-cls": "evil.Worker"}}, "engine.args.worker-cls"),
        ({"args": {"compilation-config.backend": "evil"}}, "engine.args.compilation-config.backend"),
        ({"args": {"attention-backend": "evil.Backend"}}, "engine.args.attention-backend"),
        ({"args": {"dtype": "/srv/x"}}, "engine.args.dtype"),
        ({"args": {"dtype": "--config=x"}}, "engine.args.dtype"),
        ({"args": {"max-model-len": {"a": 1}}}, "engine.args.max-model-len"),
        ({"args": {"cudagraph-capture-sizes": [[1]]}}, "engine.args.cudagraph-capture-sizes"),
        ({"args": {"not-known-yet": 1}}, "engine.args.not-known-yet"),
        ({"env": {"LD_PRELOAD": "x"}}, "engine.env.LD_PRELOAD"),
        ({"env": {"VLLM_PLUGINS": "x"}}, "engine.env.VLLM_PLUGINS"),
        ({"env": {"NCCL_ALGO": "/srv/x.so"}}, "engine.env.NCCL_ALGO"),
        ({"speculative": {"method": "custom_class"}}, "engine.speculative.method"),
        ({"speculative": {"method": "eagle", "model": "--x"}}, "engine.speculative.model"),
        ({"speculative": {"method": "eagle", "draft_load_config": {"a": 1}}}, "engine.speculative.draft_load_config"),
    ],
)
def test_whatever_is_not_known_to_be_harmless_is_code(engine: dict[str, Any], found: str) -> None:
    assert code(**engine) == [found]


def test_a_command_is_code_and_an_endpoint_is_not_until_it_sends_a_secret() -> None:
    command = {"name": "x", "engine": {"kind": "command", "run": "true"}}
    assert code_in(Spec.model_validate(command)) == ["engine.kind: command"]
    endpoint = {"kind": "endpoint", "base_url": "http://h:1/v1", "metrics_url": "off", "served_model_name": "m"}
    assert code_in(Spec.model_validate({"name": "x", "engine": endpoint})) == []
    assert code_in(Spec.model_validate({"name": "x", "engine": endpoint | {"api_key": "env:HOME"}})) == ["engine.api_key"]


def test_every_key_of_the_lists_exists() -> None:
    for kind, model in (("vllm", VllmEngine), ("endpoint", EndpointEngine)):
        assert PLAIN_KEYS[kind] <= set(model.model_fields)
    assert set(VllmEngine.model_fields) >= WORDS
