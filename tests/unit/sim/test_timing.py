"""The story's profile: tokens at their times, and acceptance in its proportions."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest

from service.domain import specfile
from tests.unit.sim.simulated import NGRAM, SimServer, Stream
from workers.bench.prompts import builtin_prompts, warmup_prompts
from workers.sim.acceptance import extend_positions, request_offset, steps
from workers.sim.profile import PACKAGED, load_profile

Serve = Callable[..., SimServer]
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
KIMI = load_profile("kimi-k2.5")
PROMPTS = {prompt.id: str((prompt.messages or [{}])[-1]["content"]) for prompt in builtin_prompts()}


def ask(server: SimServer, prompts: list[str], at_once: int = 1) -> list[Stream]:
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda prompt: server.stream(PROMPTS[prompt], max_tokens=96), prompts))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_each_built_in_prompt_has_its_entry(prompt: str) -> None:
    assert KIMI.for_text(PROMPTS[prompt]).id == prompt


def test_the_story_in_numbers() -> None:
    """At 96 tokens a drafting answer takes 41 steps after its first token."""
    entries = {entry.id: entry for entry in KIMI.prompts}
    change = {name: round(100 * (95 * each.step_s / (41 * each.verifying_step_s(5)) - 1)) for name, each in entries.items()}
    assert change | {"default": 0} == {"code": -26, "maths": -17, "structured": -18, "explanation": -21, "reasoning": -24, "default": 0}
    assert statistics.mean(1 / entries[name].step_s for name in PROMPTS) == pytest.approx(74, abs=0.5)
    assert 1 + sum(entries["code"].acceptance) == pytest.approx(2.33)
    assert [KIMI.for_text(str((prompt.messages or [{}])[-1]["content"])).ttft_s < 0.2 for prompt in warmup_prompts()]


def test_a_plain_engine_keeps_its_times(serve: Serve) -> None:
    server = serve(PROFILE="kimi-k2.5").ready()
    probe = server.stream(max_tokens=1)
    cold, code, maths = ask(server, ["code", "code", "maths"])
    assert probe.chunks[0].at - probe.sent_at < 0.6
    assert cold.chunks[0].at - cold.sent_at == pytest.approx(KIMI.first_request_ttft_s, abs=0.3)
    assert code.chunks[0].at - code.sent_at == pytest.approx(0.12, abs=0.1)
    assert code.tpot_s == pytest.approx(0.0160, rel=0.05)
    assert maths.tpot_s == pytest.approx(0.0128, rel=0.05)


def test_speculation_slows_the_story_down_as_it_should(serve: Serve) -> None:
    server = serve(NGRAM, PROFILE="kimi-k2.5").ready()
    streams = dict(
        zip(
            [*PROMPTS, *(f"{prompt} again" for prompt in PROMPTS)],
            ask(server, [*PROMPTS]) + ask(server, [*PROMPTS], at_once=5),
            strict=True,
        )
    )
    drafts, accepted = (server.metric(f"vllm:spec_decode_num_{what}_total") or 0.0 for what in ("drafts", "accepted_tokens"))
    assert 1 + accepted / drafts == pytest.approx(2.33, abs=0.05)
    first = server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="0") or 0
    last = server.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="4") or 0
    assert first / drafts == pytest.approx(0.56, abs=0.02)
    assert last / drafts == pytest.approx(0.13, abs=0.02)
    assert {len(stream.token_chunks) - 1 for stream in streams.values()} == {41}
    assert streams["code"].tpot_s == pytest.approx(0.0216, rel=0.05)
    assert streams["maths"].tpot_s == pytest.approx(1 / 64.8, rel=0.05)


def test_eight_at_once_are_mildly_slower_and_on_time(serve: Serve) -> None:
    server = serve(PROFILE="kimi-k2.5").ready()
    ask(server, ["code"])
    streams = ask(server, ["maths"] * 8, at_once=8)
    for stream in streams:
        assert stream.tpot_s == pytest.approx(0.0128 * 1.28, rel=0.08)


@pytest.mark.parametrize("offset", [0.0, 0.1234, 0.5, 0.999])
def test_any_window_of_forty_steps_has_the_proportions(offset: float) -> None:
    lengths = [step.accepted for step in islice(steps([0.56, 0.30, 0.19, 0.15, 0.13], 1.0, offset), 400)]
    for start in range(360):
        window = lengths[start : start + 40]
        for position, share in enumerate([0.56, 0.30, 0.19, 0.15, 0.13]):
            assert sum(length > position for length in window) / 40 == pytest.approx(share, abs=0.076)  # three steps
        assert statistics.mean(window) == pytest.approx(1.33, abs=0.2)  # one run of five more or less is 0.125
    assert statistics.mean(lengths) == pytest.approx(1.33, abs=0.02)


def test_steps_without_a_draft_have_their_share_too() -> None:
    shown = list(islice(steps([0.8, 0.4], 0.25, 0.3), 400))
    drafted = [step for step in shown if step.drafted]
    assert len(drafted) == pytest.approx(100, abs=3)
    assert statistics.mean(step.accepted for step in drafted) == pytest.approx(1.2, abs=0.05)
    assert not any(step.accepted for step in shown if not step.drafted)


def test_other_draft_lengths() -> None:
    assert extend_positions([0.5, 0.4], 1) == [0.5]
    assert extend_positions([0.5, 0.4], 3) == [0.5, 0.4, pytest.approx(0.34)]
    entry = KIMI.prompts[0]
    assert entry.step_s < entry.verifying_step_s(3) < entry.verifying_step_s(5) < entry.verifying_step_s(7)


def test_the_same_seed_gives_the_same_steps_in_any_order(serve: Serve) -> None:
    one, two, other = (
        serve(NGRAM).ready(),
        serve(NGRAM, "--gpu-memory-utilization=0").ready(),
        serve(NGRAM, "--gpu-memory-utilization=0", SEED="2"),
    )
    asked = ["first", "second", "first"]
    forwards = [[len(chunk.tokens) for chunk in one.stream(prompt).token_chunks] for prompt in asked]
    backwards = [[len(chunk.tokens) for chunk in two.stream(prompt).token_chunks] for prompt in ["second", "first", "first"]]
    assert [forwards[1], forwards[0], forwards[2]] == backwards
    assert forwards[0] != forwards[2]
    assert [len(chunk.tokens) for chunk in other.ready().stream("first").token_chunks] != forwards[0]
    assert request_offset(0, "p", 0) != request_offset(0, "p", 1)


def test_the_packaged_profiles_and_example_files_can_be_read() -> None:
    assert {path.stem for path in PACKAGED.glob("*.json")} >= {"kimi-k2.5", "fast"}
    (base,) = specfile.parse((EXAMPLES / "kimi-baseline.yaml").read_text(encoding="utf-8"))
    (ngram,) = specfile.parse((EXAMPLES / "kimi-ngram.yaml").read_text(encoding="utf-8"))
    assert base.bench == ngram.bench
    assert ngram.baseline == base.name
    assert base.engine.model_copy(update={"speculative": ngram.engine.speculative}) == ngram.engine  # type: ignore[union-attr]
