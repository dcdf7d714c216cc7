"""The example files: right by the models and by the schema that editors use, and each does what its head says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from expctl import dryrun, specfiles
from service.domain.hashing import bench_hash, engine_hash
from service.domain.spec import Spec
from service.domain.specfile import ENGINE_KINDS, read_documents
from service.domain.specschema import json_schema
from tests.unit.docs.reading import EXAMPLES, ROOT, name

SPECS = {path.stem: specfiles.read(str(path), []) for path in EXAMPLES}
ON_THE_DEMO_HOST = ("kimi-baseline", "kimi-ngram", "kimi-eagle3", "nccl-sweep")


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


@pytest.mark.parametrize("path", EXAMPLES, ids=name)
def test_an_editor_finds_nothing_wrong(path: Path, validator: Draft202012Validator) -> None:
    documents = [_plain(one.value) for one in read_documents(path.read_bytes(), path.name)]
    assert [error.message for document in documents for error in validator.iter_errors(document)] == []


def _plain(value: Any) -> Any:
    """As an editor reads it: a number is one, however it is written."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return getattr(value, "number", value)


@pytest.mark.parametrize("stem", SPECS)
def test_a_dry_run_finds_nothing_wrong(stem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPCTL_SERVER", "http://127.0.0.1:1")
    for spec in SPECS[stem]:
        plan = dryrun.plan(spec.model_dump(mode="json", by_alias=True))
        assert plan["command"]
        assert [one["text"] for one in plan["findings"] if one["verdict"] == "wrong"] == []


def test_there_is_one_of_every_kind() -> None:
    assert {spec.engine.kind for specs in SPECS.values() for spec in specs} == set(ENGINE_KINDS)


def test_how_many_experiments_each_makes() -> None:
    assert {stem: len(specs) for stem, specs in SPECS.items()} == {
        "endpoint": 1, "fork": 1, "kimi-baseline": 1, "kimi-eagle3": 3, "kimi-ngram": 1, "llamacpp": 2, "nccl-sweep": 6, "sglang": 2,
        "sure": 2, "train": 1,
    }  # fmt: skip


def test_those_for_the_demos_host_can_be_compared_with_its_baseline() -> None:
    [baseline] = SPECS["kimi-baseline"]
    for stem in ON_THE_DEMO_HOST[1:]:
        for spec in SPECS[stem]:
            assert bench_hash(spec.bench) == bench_hash(baseline.bench)
            assert (spec.host, spec.baseline) == (baseline.host, baseline.name)


@pytest.mark.parametrize("stem", ["llamacpp", "sglang", "sure"])
def test_pairs_differ_in_one_thing_and_can_be_compared(stem: str) -> None:
    baseline, candidate = SPECS[stem]
    assert candidate.baseline == baseline.name
    assert bench_hash(candidate.bench) == bench_hash(baseline.bench)
    own, other = (spec.engine.model_dump(exclude_defaults=True) for spec in (candidate, baseline))
    assert {key for key in own if own[key] != other.get(key)} == ({"args"} if stem == "sure" else {"speculative"})


@pytest.mark.parametrize("stem", ["kimi-eagle3", "nccl-sweep"])
def test_a_sweep_makes_configurations_that_differ(stem: str) -> None:
    specs: list[Spec] = SPECS[stem]
    assert len({engine_hash(spec) for spec in specs}) == len({spec.name for spec in specs}) == len(specs)


def test_the_files_named_in_examples_are_there() -> None:
    [spec] = SPECS["endpoint"]
    prompts = spec.bench.prompts
    assert isinstance(prompts, list)
    assert len(prompts) == len((ROOT / "examples" / "prompts.jsonl").read_text().splitlines())
