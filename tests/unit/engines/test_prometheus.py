"""Counters from a Prometheus page."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain.speculation import speculation_between, speculation_so_far
from workers.engines.page import parse_page
from workers.engines.prometheus import counters_of, read_counters

PAGE = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 50.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 7
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 20.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 4.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 10.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="tiny"} 5.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 50.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="tiny"} 25.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="tiny"} 10.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 9.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="tiny",position="0"} 4.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="10"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="2"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_created{engine="0",model_name="tiny",position="0"} 1.79e+09
process_start_time_seconds 1.79e+09
"""


def test_counters_are_summed_over_ranks_and_kept_a_rank() -> None:
    counters = counters_of(parse_page(PAGE))
    assert counters is not None
    assert counters.engine == "vllm"
    assert (counters.generation_tokens, counters.prompt_tokens, counters.running) == (150, 7, 2)
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens) == (15, 75, 40)
    assert (counters.prefix_cache_queries, counters.prefix_cache_hits) == (20, 4)
    assert counters.accepted_per_position == [13, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1]
    assert counters.process_start == 1.79e9
    assert counters.per_engine["1"] == {
        "generation_tokens": 50,
        "drafts": 5,
        "draft_tokens": 25,
        "accepted_tokens": 10,
        "accepted_at_0": 4,
    }


def test_without_speculation_its_counters_are_unknown_and_not_zero() -> None:
    page = "\n".join(line for line in PAGE.splitlines() if "spec_decode" not in line)
    counters = counters_of(parse_page(page))
    assert counters is not None
    assert (counters.drafts, counters.draft_tokens, counters.accepted_tokens, counters.accepted_per_position) == (None,) * 4


def test_several_models_on_one_page() -> None:
    counters = counters_of(
        parse_page(
            'vllm:generation_tokens_total{engine="0",model_name="a"} 1\nvllm:generation_tokens_total{engine="0",model_name="b"} 2\n'
            'vllm:spec_decode_num_drafts_total{engine="0",model_name="b"} 9\n'
        )
    )
    assert counters is not None
    assert counters.generation_tokens == 3
    assert counters.per_engine == {"a/0": {"generation_tokens": 1}, "b/0": {"generation_tokens": 2, "drafts": 9}}


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            'vllm:generation_tokens_total{model_name="a"} 5\nvllm:spec_decode_num_emitted_tokens_total{model_name="a"} 4\n',
            {"engine": "vllm_v0", "generation_tokens": 5.0, "emitted_tokens": 4.0, "drafts": None},
        ),
        (
            (
                "llamacpp:tokens_predicted_total 5\nllamacpp:spec_decode_num_drafts_total 2\n"
                'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 1\n'
                'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="999999999999"} 1\n'
            ),
            {"engine": "llamacpp", "generation_tokens": 5.0, "drafts": 2.0, "accepted_per_position": [0.0, 1.0]},
        ),
        (
            "llamacpp:tokens_predicted_total 5\nllamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 12\n",
            {"prompt_tokens": 42.0, "prefix_cache_hits": 12.0, "prefix_cache_queries": 42.0},
        ),
        (
            'vllm:generation_tokens{engine="0"} 5\nvllm:spec_decode_num_drafts{engine="0"} 2\n',
            {"engine": "vllm", "generation_tokens": 5.0, "drafts": 2.0},
        ),
        (
            "llamacpp:tokens_predicted_total 5\nllamacpp:prompt_tokens_total 30\n",
            {"prompt_tokens": 30.0, "prefix_cache_hits": None, "prefix_cache_queries": None},
        ),
        (
            (
                'sglang:prompt_tokens_total{is_streaming="true"} 40\nsglang:prompt_tokens_total{is_streaming="false"} 2\n'
                'sglang:cached_tokens_total{cache_source="device"} 9\nsglang:cached_tokens_total{cache_source="host"} 3\n'
            ),
            {"prompt_tokens": 42.0, "prefix_cache_hits": 12.0, "prefix_cache_queries": 42.0},
        ),
        ("sglang:prompt_tokens_total 42\n", {"prompt_tokens": 42.0, "prefix_cache_hits": None, "prefix_cache_queries": None}),
        (
            (
                'sglang:spec_accept_length{dp_rank="0",tp_rank="0"} 2.5\nsglang:spec_accept_length{dp_rank="0",tp_rank="1"} 2.5\n'
                'sglang:spec_accept_length{dp_rank="1",tp_rank="0"} 0.0\nsglang:spec_accept_rate{dp_rank="0"} 0.3\n'
            ),
            {"engine": "sglang", "gauges": {"0": {"accept_length": 2.5, "accept_rate": 0.3}, "1": {"accept_length": 0.0}}},
        ),
    ],
)
def test_pages_of_other_engines(page: str, expected: dict[str, object]) -> None:
    counters = counters_of(parse_page(page))
    assert counters is not None
    assert {name: getattr(counters, name) for name in expected} == expected


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<html>hello</html>",
        'python_info{version="3"} 1\n',
        'vllm:generation_tokens_total{model_name="a"} NaN\n',
        # V0 without speculation shares some of V1's names.
        'vllm:generation_tokens_total{model_name="a"} 5\nvllm:num_requests_swapped{model_name="a"} 0\n',
    ],
)
def test_pages_of_nobody_known(page: str) -> None:
    assert counters_of(parse_page(page)) is None


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("up 1", {}, 1.0),
        ("up{} 1", {}, 1.0),
        ('up{a="b"} 1 1700000000000', {"a": "b"}, 1.0),
        ('up{a="b",} 1', {"a": "b"}, 1.0),
        ('up { a = "b" , c = "d" } 1', {"a": "b", "c": "d"}, 1.0),
        (r'up{a="q\"uo\\te\nd",b="{x},y=\"z\""} 2.5e3', {"a": 'q"uo\\te\nd', "b": '{x},y="z"'}, 2500.0),
        ("up +Inf", {}, float("inf")),
        ('up_bucket{le="1"} 3 # {trace_id="x"} 0.5', {"le": "1"}, 3.0),
        ('up{a="b"} 1 1.7e+09', {"a": "b"}, 1.0),
        ('up{a="b\u2028c"} 1', {"a": "b\u2028c"}, 1.0),
    ],
)
def test_lines(line: str, labels: dict[str, str], value: Any) -> None:
    page = parse_page(line)
    assert page.parse_errors == 0
    assert (page.samples[0].labels, page.samples[0].value) == (labels, value)


@pytest.mark.parametrize("line", ["up", 'up{a="b} 1', "up{a=b} 1", "up one", "1up 1", 'up{a="b" 1', "garbage here too many"])
def test_broken_lines_are_counted_and_the_others_read(line: str) -> None:
    page = parse_page(f"# HELP x y\n{line}\nok 1\n")
    assert page.parse_errors == 1
    assert page.total("ok") == 1


def test_nan_says_nothing() -> None:
    page = parse_page("a NaN\nb NaN\nb 2\n")
    assert page.total("a") is None
    assert page.total("b") == 2


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
@pytest.mark.parametrize("prefix", ["vllm:", "llamacpp:"])
def test_a_counter_of_speculation_that_is_no_number_is_not_taken_for_an_absent_one(prefix: str, value: str) -> None:
    tokens = {"vllm:": "generation_tokens_total", "llamacpp:": "tokens_predicted_total"}[prefix]
    counters = counters_of(parse_page(f"{prefix}{tokens} 5\n{prefix}spec_decode_num_drafts_total {value}\n"))
    assert counters is not None
    assert counters.unreadable
    found = speculation_so_far(counters)
    assert (found.status, found.mean_acceptance_length, found.warnings) == ("unknown", None, ["counters_unreadable", "since_server_start"])


def test_when_series_began_tells_a_restart_that_the_counters_do_not_show() -> None:
    page = PAGE.replace("process_start_time_seconds", "other")
    grown = page.replace(" 100.0", " 900.0")
    before, same, after = (counters_of(parse_page(text)) for text in (page, grown, grown.replace('tiny"} 1.79e+09', 'tiny"} 1.790001e+09')))
    assert before is not None
    assert same is not None
    assert after is not None
    assert list(before.created) == ["vllm:generation_tokens_created{engine=0,model_name=tiny}"]
    assert speculation_between(before, same).status == "never_drafted"
    assert speculation_between(before, after).warnings == ["counter_reset"]


@pytest.mark.parametrize("prefix", ["vllm_", "ray_vllm_"])
def test_names_as_relays_rewrite_them(prefix: str) -> None:
    counters = counters_of(parse_page(PAGE.replace("vllm:", prefix)))
    assert counters is not None
    assert (counters.drafts, counters.accepted_per_position) == (15, [13, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1])


V0 = """\
vllm:spec_decode_draft_acceptance_rate{model_name="m"} 0.6421
vllm:spec_decode_efficiency{model_name="m"} 0.5982
vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 8547.0
vllm:spec_decode_num_draft_tokens_total{model_name="m"} 13311.0
vllm:spec_decode_num_emitted_tokens_total{model_name="m"} 10616.0
"""


def test_v0s_draft_length_follows_from_its_efficiency() -> None:
    counters = counters_of(parse_page(V0))
    assert counters is not None
    assert counters.draft_length == 3
    found = speculation_so_far(counters)
    assert found.drafts == 4437
    assert found.mean_acceptance_length == pytest.approx(2.393, abs=5e-4)


@pytest.mark.parametrize(("efficiency", "length"), [("0.5982", 3), ("0.7", None), ("0.9", None), ("NaN", None), ("0", None)])
def test_an_efficiency_that_fits_no_length_is_not_believed(efficiency: str, length: int | None) -> None:
    counters = counters_of(parse_page(V0.replace("0.5982", efficiency)))
    assert counters is not None
    assert counters.draft_length == length


def test_v0s_gauges_alone_say_that_it_speculates_but_not_how_well() -> None:
    counters = counters_of(parse_page("\n".join(V0.splitlines()[:2]) + "\n"))
    assert counters is not None
    assert speculation_so_far(counters).status == "unknown"


def test_read_over_http_follows_redirects(server: Any) -> None:
    server.answers = {"/metrics": (307, "/metrics/"), "/metrics/": (200, PAGE)}
    counters = read_counters(f"{server.url}/metrics", {"Authorization": "Bearer k"})
    assert counters is not None
    assert counters.drafts == 15
    assert server.asked[0][2]["Authorization"] == "Bearer k"


def test_another_server_is_not_followed_to(server: Any) -> None:
    server.answers = {"/metrics": (307, f"{server.url.replace('127.0.0.1', 'localhost')}/metrics/"), "/metrics/": (200, PAGE)}
    assert read_counters(f"{server.url}/metrics") is None
    assert [path for _, path, _, _ in server.asked] == ["/metrics"]


@pytest.mark.parametrize("answer", [(404, "x"), (500, PAGE), (401, ""), (200, "no series")])
def test_what_is_no_page_is_none(server: Any, answer: Any) -> None:
    server.answers = {"/metrics": answer}
    assert read_counters(f"{server.url}/metrics") is None


def test_nobody_there_is_none(dead_url: str) -> None:
    assert read_counters(f"{dead_url}/metrics", timeout_s=1.0) is None
    assert read_counters("not a url") is None
