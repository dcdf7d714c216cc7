from __future__ import annotations

from typing import Any

import pytest

from service.domain.comparison import compare
from service.domain.errors import SpecError
from service.domain.hashing import bench_hash, engine_hash, spec_hash
from service.domain.loads import counted, experiments, load_label, planned
from service.domain.spec import MOST_LOADS, Spec
from service.domain.specfile import parse, read_documents
from service.domain.specschema import json_schema
from service.domain.sweep import expand
from tests.unit.domain.arms import BASE, arm, speeds

VLLM = "engine: {kind: vllm, model: m}"
ENDPOINT = "engine: {kind: endpoint, base_url: 'http://127.0.0.1:1/v1'}"
COMMAND = "engine: {kind: command, run: 'true'}"


def spec(**more: Any) -> Spec:
    return Spec.model_validate({"name": "x", "engine": {"kind": "vllm", "model": "m"}, **more})


@pytest.mark.parametrize(
    ("engine", "key", "told"),
    [
        (VLLM, "repeat_load: 0", "line 3: repeat_load: must be 1 or more (it is 0)"),
        (VLLM, f"repeat_load: {MOST_LOADS + 1}", f"repeat_load: must be {MOST_LOADS} or less"),
        (VLLM, "repeat_load: 1.5", "repeat_load: must be a whole number"),
        (VLLM, "recheck_baseline: 1", "recheck_baseline: must be true or false"),
        (VLLM, "repeat_loads: 2", "did you mean repeat_load?"),
        (ENDPOINT, "repeat_load: 2", "repeat_load: an endpoint is not loaded, it serves already; leave it out"),
        (ENDPOINT, "recheck_baseline: true", "recheck_baseline: an endpoint is not loaded"),
        (COMMAND, "repeat_load: 2", "repeat_load: a command serves nothing that could be loaded again"),
        (COMMAND, "recheck_baseline: true", "recheck_baseline: a command serves nothing"),
    ],
)
def test_what_no_load_can_be_repeated_for(engine: str, key: str, told: str) -> None:
    with pytest.raises(SpecError) as found:
        parse(f"name: x\n{engine}\n{key}\n")
    assert told in found.value.what


@pytest.mark.parametrize("engine", [VLLM, ENDPOINT, COMMAND])
def test_one_load_and_no_recheck_may_be_written_for_every_kind(engine: str) -> None:
    [made] = parse(f"name: x\n{engine}\nrepeat_load: 1\nrecheck_baseline: false\n")
    assert Spec.model_validate(made.model_dump(mode="json")) == made


def test_how_often_it_is_loaded_changes_no_hash() -> None:
    one, many = spec(), spec(repeat_load=5, recheck_baseline=True, baseline="b")
    assert (engine_hash(one), bench_hash(one.bench), spec_hash(one)) == (engine_hash(many), bench_hash(many.bench), spec_hash(many))


def swept(repeat_load: str, values: int) -> list[Any]:
    text = f"name: x\n{VLLM}\nrepeat_load: {repeat_load}\nsweep: {{bench.repeat: {list(range(1, values + 1))}}}\n"
    [document] = read_documents(text, "the file")
    return expand(document, "the file")


def test_loads_and_sweeps_multiply_up_to_a_bound() -> None:
    assert len(swept("10", 20)) == 20
    with pytest.raises(SpecError, match=r"line 4: sweep makes 21 x repeat_load 10 = 210 experiments") as found:
        swept("10", 21)
    assert found.value.todo == "sweep fewer values, or load each less often"
    assert len(swept("ten", 20)) == 20, "that is no number, as the document's own check says"


@pytest.mark.parametrize("key", ["repeat_load", "recheck_baseline"])
def test_how_it_is_measured_cannot_be_swept(key: str) -> None:
    [document] = read_documents(f"name: x\n{VLLM}\nsweep: {{{key}: [1, 2]}}\n", "the file")
    with pytest.raises(SpecError, match=f"line 3: sweep: {key} cannot be swept"):
        expand(document, "the file")


def test_the_schema_knows_both_keys() -> None:
    found = json_schema()["properties"]
    assert (found["repeat_load"]["minimum"], found["repeat_load"]["maximum"]) == (1, MOST_LOADS)
    assert (found["recheck_baseline"]["type"], found["recheck_baseline"]["default"]) == ("boolean", False)


def test_one_recheck_serves_all_candidates_of_a_baseline() -> None:
    base = spec(name="base", repeat_load=2)
    candidates = [spec(name=f"k={k}", repeat_load=3, recheck_baseline=True, baseline="base") for k in (3, 5)]
    assert (planned([base, *candidates]), experiments([base, *candidates])) == ("8 loads + 1 baseline recheck", 9)
    other = spec(recheck_baseline=True, baseline=7)
    assert planned([*candidates, other]) == "7 loads + 2 baseline rechecks"
    assert (planned([spec()]), counted(3, 0)) == ("1 load", "3 loads")


def test_what_tells_loads_apart() -> None:
    assert (load_label(2, 3, None), load_label(1, 1, None), load_label(1, 1, 4)) == ("load 2 of 3", "", "baseline 4 again")


def even(loads: int, scale: float = 1.0) -> list[list[Any]]:
    return [[speeds({prompt: [scale * value for value in values] for prompt, values in BASE.items()})] for _ in range(loads)]


@pytest.mark.parametrize(("base", "candidate", "offer"), [(1, 1, 3), (1, 3, 3), (3, 3, 6), (15, 15, MOST_LOADS)])
def test_more_loads_are_offered_as_far_as_they_can_be_asked_for(base: int, candidate: int, offer: int) -> None:
    found = compare(arm(*even(base)), arm(*even(candidate), experiment=2))
    assert any(line.startswith(f"repeat_load: {offer} on both sides") for line in found.advice)


def test_nothing_is_offered_that_cannot_be_asked_for() -> None:
    full = compare(arm(*even(MOST_LOADS)), arm(*even(MOST_LOADS), experiment=2))
    assert not any("repeat_load" in line for line in full.advice)
    endpoint = {"spec": {"engine": {"kind": "endpoint"}}}
    noisy = {"a": [80.0, 120.0, 100.0], "b": [80.0, 120.0, 100.0]}
    served = compare(arm([speeds(noisy)], **endpoint), arm([speeds(noisy)], experiment=2, **endpoint))
    assert any("bench.repeat" in line for line in served.advice)
    assert not any("repeat_load" in line or "recheck_baseline" in line for line in served.advice)


def test_the_recheck_that_is_offered_shows_what_was_promised() -> None:
    now = compare(arm(*even(1)), arm(*even(1), experiment=2))
    line = next(line for line in now.advice if line.startswith("recheck_baseline"))
    promised = float(line.partition("would show ")[2].partition(" %")[0])
    effect = compare(arm(*even(1), recheck=even(1)), arm(*even(1), experiment=2)).bench_phases[0].effect
    assert effect is not None
    assert effect.smallest_detectable is not None
    assert 100 * effect.smallest_detectable == pytest.approx(promised, rel=0.03)


def test_which_experiments_stand_behind_each_side() -> None:
    base = arm(*even(2), recheck=even(1), experiments=[1, 2, 7], left_out=["load 3 of 3 (experiment 3) did not succeed"])
    found = compare(base, arm(*even(1), experiment=4, experiments=[4]))
    assert found.experiments == {"baseline": [1, 2], "recheck": [7], "candidate": [4]}
    assert "of the baseline, load 3 of 3 (experiment 3) did not succeed" in found.warnings
    assert found.bench_phases[0].loads == [3, 1]


def test_how_often_it_was_loaded_is_no_difference_of_the_configuration() -> None:
    one, other = spec().model_dump(mode="json"), spec(repeat_load=3, recheck_baseline=True, baseline=1).model_dump(mode="json")
    assert compare(arm(*even(1), spec=one), arm(*even(1), spec=other)).spec_differences == {}
