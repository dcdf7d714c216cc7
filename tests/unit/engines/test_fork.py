"""A vLLM engine that is forked from an existing unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.domain.errors import UsageError
from service.domain.spec import Spec
from workers.basecommand import BaseCommand
from workers.engines.base import Engine, HostDefaults, Readiness
from workers.engines.registry import make_engine
from workers.engines.vllm import VllmEngine

WORDS = ("/v/bin/vllm", "serve", "/m/kimi", "--served-model-name", "kimi", "k2", "--port", "8000", "-tp", "8")
BASE = BaseCommand("vllm.service", WORDS, 0, {"HOME": "/h"}, ("take care",))


def forked(base: BaseCommand | None = BASE, environ: dict[str, str] | None = None, **engine: Any) -> Engine:
    spec = Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "from_unit": "vllm.service", **engine}})
    return make_engine(spec, HostDefaults(8001, {"vllm": "/not/this"}), environ or {}, base)


def test_a_fork_changes_what_the_experiment_says_and_nothing_else() -> None:
    launch = forked(user="u", cwd="/d", env={"A": "b"}, args={"tensor-parallel-size": 4}, speculative={"method": "ngram"}).launch()
    assert launch is not None
    assert launch.fork == (
        *WORDS[:7], "8001", "--tensor-parallel-size", "4", "--speculative-config", '{"method":"ngram"}',
    )  # fmt: skip
    assert launch.argv == launch.fork
    assert (launch.port, launch.user, launch.cwd, launch.env) == (8001, "u", "/d", {"PYTHONUNBUFFERED": "1", "A": "b"})
    assert launch.changes == (
        ("--tensor-parallel-size", "8", "4"),
        ("--port", "8000", "8001"),
        ("--speculative-config", None, '{"method":"ngram"}'),
    )
    assert launch.warnings == ("take care",)


def test_its_port() -> None:
    ports = [forked(**keys).launch() for keys in ({}, {"port": 9000}, {"keep_port": True})]
    assert [launch.port for launch in ports if launch] == [8001, 9000, 8000]


def test_what_cannot_be_known_beforehand_is_left_open() -> None:
    launch = forked(BaseCommand("vllm.service", ("/v/vllm", "serve", "%H", "$HOME"), 0, {})).launch()
    assert launch is not None
    assert (launch.argv, launch.fork) == ((), ("/v/vllm", "serve", "%H", "$HOME", "--port", "8001"))


def test_the_id_that_requests_name(server: Any) -> None:
    server.serves("kimi", "k2")
    assert forked().probe(server.url).detail == "kimi answered"
    assert forked().served_model(Readiness(ready=True, models=("other",))) == "kimi"
    assert forked(served_model_name="mine").served_model(Readiness(ready=True)) == "mine"
    unknown = forked(BaseCommand("vllm.service", ("/v/vllm", "serve", "%H")))
    assert unknown.served_model(Readiness(ready=True, models=("only",))) == "only"


def test_the_api_key_of_the_experiment_wins() -> None:
    base = BaseCommand("vllm.service", (*WORDS, "--api-key", "old"))
    launch = forked(base, {"K": "new"}, api_key="env:K").launch()
    assert launch is not None
    assert "old" not in (launch.fork or ())
    assert launch.env["VLLM_API_KEY"] == "new"
    kept = forked(base).launch()
    assert kept is not None
    assert any("engine.api_key" in warning for warning in kept.warnings)


def test_without_the_units_command_line_it_cannot_say_how_to_start() -> None:
    engine = forked(base=None)
    assert engine.api_base("http://a") == "http://a/v1"
    with pytest.raises(UsageError, match=r"vllm\.service is not known here"):
        engine.launch()


def test_an_engine_that_is_not_forked_takes_no_notice(engine_of: Callable[..., Engine]) -> None:
    spec = Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "m", "user": "u"}})
    launch = make_engine(spec, HostDefaults(8001, {}), {}, BASE).launch()
    assert launch is not None
    assert (launch.argv, launch.fork, launch.user) == (("vllm", "serve", "m", "--port", "8001"), None, "u")
    assert isinstance(engine_of(kind="vllm", model="m"), VllmEngine)
