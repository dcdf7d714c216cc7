"""Maps that must be total, and hashes that must not drift unnoticed."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from service.domain.events import EventType
from service.domain.hashing import FIVE_VERSION, bench_hash, engine_hash, spec_hash
from service.domain.reasons import RULES, Reason, ReasonClass
from service.domain.spec import FIVE_IDS, Spec
from service.domain.status import ACTIVE, MOVES, Outcome, Status, StepName
from service.domain.wording import status_text
from workers.bench.prompts import builtin_prompts
from workers.runner import STEPS

BASE = {"name": "x", "engine": {"kind": "vllm", "model": "m"}}


def spec(**more: object) -> Spec:
    return Spec.model_validate(BASE | more)


def test_every_reason_has_a_rule_with_words() -> None:
    assert set(RULES) == set(Reason)
    assert all(rule.sentence and rule.remedy and rule.outcome != Outcome.SUCCEEDED for rule in RULES.values())


def test_config_and_hardware_reasons_are_never_tried_again() -> None:
    never = {reason for reason, rule in RULES.items() if rule.reason_class == ReasonClass.CONFIG} | {
        Reason.GPU_LOST,
        Reason.GPU_HARDWARE_ERROR,
    }
    assert all(RULES[reason].retry.times == 0 for reason in never)


def test_every_status_has_moves_and_words() -> None:
    assert set(MOVES) == set(Status)
    assert MOVES[Status.FINISHED] == frozenset()
    for status in set(Status) - {Status.FINISHED}:
        assert status_text(status, None, None, None)
    for outcome in Outcome:
        assert status_text(Status.FINISHED, "load", outcome, "engine_dead")
    assert {Status.RUNNING, Status.STOPPING} == ACTIVE


def test_every_step_is_run_in_order() -> None:
    assert [name for name, _ in STEPS] == list(StepName)


def test_event_names_are_dotted_facts() -> None:
    assert all(kind.count(".") == 1 for kind in EventType)


def test_what_forces_a_reload_and_what_does_not() -> None:
    base = spec()
    assert engine_hash(base) == engine_hash(spec(name="y", priority=3, bench={"repeat": 9}))
    assert engine_hash(base) != engine_hash(spec(engine={"kind": "vllm", "model": "m", "env": {"A": "1"}}))
    assert engine_hash(base) != engine_hash(spec(host="other"))


def test_more_repeats_stay_comparable_other_lengths_do_not() -> None:
    base = spec()
    assert bench_hash(base.bench) == bench_hash(spec(bench={"repeat": 9, "warmup": 0}).bench)
    for other in ({"max_tokens": 5}, {"concurrency": [1]}, {"temperature": 0.5}, {"extra_body": {"a": 1}}):
        assert bench_hash(base.bench) != bench_hash(spec(bench=other).bench)
    assert spec_hash(base) != spec_hash(spec(bench={"repeat": 9}))
    assert spec_hash(base) == spec_hash(spec(name="another", baseline="b"))


def test_the_five_prompts_are_known_by_their_ids() -> None:
    assert tuple(prompt.id for prompt in builtin_prompts()) == FIVE_IDS


def test_the_text_of_the_five_prompts_belongs_to_their_version() -> None:
    text = files("workers.bench").joinpath("prompts", "five.jsonl").read_bytes()
    assert (FIVE_VERSION, hashlib.sha256(text).hexdigest()[:16]) == (1, FIVE_DIGEST)


FIVE_DIGEST = "9b14fdcdc485a6cc"
