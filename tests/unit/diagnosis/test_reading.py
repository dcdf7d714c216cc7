"""Streams in bounded memory, single kinds, and bytes without any sense."""

from __future__ import annotations

import io
import json
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.domain.reasons import Reason
from tests.unit.diagnosis.conftest import DATA, cases
from workers.diagnosis.diagnose import Kind, diagnose_as, diagnose_journal, diagnose_lines, diagnose_paste
from workers.diagnosis.stream import Ahead, read_stream
from workers.engines.vllm_log import VllmLoadLog

RECORDINGS = {
    "good_ngram_with_traffic": ("stopped", None, None),
    "too_long": ("failed", Reason.BAD_ARGUMENTS, "User-specified max_model_len (100000) is greater"),
    "bad_flag": ("failed", Reason.BAD_ARGUMENTS, "unrecognized arguments: --no-such-flag 3"),
    "bad_json": ("failed", Reason.BAD_ARGUMENTS, "argument --speculative-config"),
    "kv0": ("failed", Reason.KV_CACHE_TOO_SMALL, "ValueError: No available memory for the cache blocks"),
    "port_in_use": ("failed", Reason.PORT_IN_USE, "OSError: [Errno 98] Address already in use"),
    "wrong_method": ("failed", Reason.BAD_ARGUMENTS, "input_value='ngrm'"),
    "min_above_max": ("failed", Reason.BAD_ARGUMENTS, "prompt_lookup_min=5 must be <= prompt_lookup_max=2"),
    "no_draft_model": ("failed", Reason.MODEL_NOT_FOUND, "'/no/such/draft'"),
    "odd_tensor_parallel": ("failed", Reason.BAD_ARGUMENTS, "attention heads (4) must be divisible by tensor parallel size (7)"),
    "truncated": ("failed", Reason.CORRUPT_OR_INCOMPLETE_WEIGHTS, "SafetensorError: Error while deserializing header"),
}


def stream_of(path: Path) -> dict[str, object]:
    with path.open("rb") as stream:
        return diagnose_journal(read_stream(stream))


@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_by_every_way_in(name: str) -> None:
    path = DATA / "vllm-0.32" / f"{name}.log"
    text = path.read_text()
    state, reason, words = RECORDINGS[name]
    for answer in (diagnose_paste(text), diagnose_as(Kind.JOURNAL, text), diagnose_lines(text.split("\n")), stream_of(path)):
        assert (answer["state"], answer["reason"]) == (state, reason)
        assert words is None or words in str(answer["evidence"])
        assert answer["engine"] == "vllm"


def test_the_line_that_says_why_is_given_whole() -> None:
    for name in ("too_long", "wrong_method"):
        path = DATA / "vllm-0.32" / f"{name}.log"
        evidence = str(stream_of(path)["evidence"])
        assert len(evidence) > 500
        assert evidence in path.read_text()
    endless = "(EngineCore pid=1) ERROR 11-30 03:36:34 [core.py:1] ValueError: No available memory for the cache blocks. " + "x" * 9000
    cut = str(diagnose_as(Kind.JOURNAL, endless)["evidence"])
    assert len(cut) == 2000
    assert cut in endless


@pytest.mark.parametrize("name", ["port_in_use", "odd_tensor_parallel", "too_long"])
def test_a_stream_knows_the_version_of_a_load_that_failed_early(name: str) -> None:
    assert stream_of(DATA / "vllm-0.32" / f"{name}.log")["engine_version"] == "0.32.0"


def test_a_stream_says_what_the_whole_says() -> None:
    path = DATA / "vllm-0.32" / "good_ngram_with_traffic.log"
    whole, stream = diagnose_as(Kind.JOURNAL, path.read_text()), stream_of(path)
    for key in ("engine_version", "speculation", "phase", "component"):
        assert stream[key] == whole[key]
    assert set(stream["warnings"]) <= set(whole["warnings"])  # type: ignore[call-overload]


def test_every_pasted_journal_is_read_the_same_from_a_stream() -> None:
    shapes = [case for case in cases("shapes") if case["name"].startswith("llama.cpp without memory")]
    for topic in (cases("loading"), cases("failures"), cases("versions"), shapes):
        for case in topic:
            text = case["input"]
            if any(mark in text for mark in ("--- ", "# ", "GET ", "$ ", "ActiveState=")):
                continue
            stream = diagnose_journal(read_stream(io.BytesIO(text.encode())))
            for key in ("state", "reason", "phase", "done", "total", "remedy"):
                assert stream[key] == diagnose_as(Kind.JOURNAL, text)[key], case["name"]


def test_an_engine_that_stands_still_is_seen_in_a_long_log() -> None:
    start = "INFO:     Application startup complete.\n"
    traffic = '(APIServer pid=1) INFO:     10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 30_000
    report = "(APIServer pid=1) INFO 11-30 03:36:34 [loggers.py:335] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    moving = report + "Avg generation throughput: 90.1 tokens/s, Running: 4 reqs, Waiting: 0 reqs\n"
    stuck = report + "Avg generation throughput: 0.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs\n"
    head = (start + traffic).encode()
    assert diagnose_journal(read_stream(io.BytesIO(head + (stuck * 9 + moving).encode())))["state"] == "ready"
    still = diagnose_journal(read_stream(io.BytesIO(head + (moving + stuck * 9).encode())))
    assert (still["state"], still["reason"]) == ("not_ready", Reason.ENGINE_UNRESPONSIVE)


def test_a_long_log_without_its_beginning_is_of_an_engine_that_serves() -> None:
    traffic = '(APIServer pid=1) INFO:     10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK\n' * 30_000
    assert diagnose_journal(read_stream(io.BytesIO(traffic.encode())))["state"] == "ready"


def test_an_exception_is_the_end_only_where_no_step_follows() -> None:
    died = "(APIServer pid=1) ImportError: cannot import name 'a' from 'b'\n"
    step = "(EngineCore pid=9) INFO 10-22 09:33:48 [gpu_model_runner.py:2338] Starting to load model /m...\n"
    ended = diagnose_as(Kind.JOURNAL, step + died)
    assert (ended["state"], ended["reason"], ended["component"]) == ("failed", Reason.ENGINE_DEAD, "APIServer")
    assert diagnose_as(Kind.JOURNAL, step + died + step)["state"] == "loading"
    # Of a load that is watched, more may come: there it is no cause yet.
    assert VllmLoadLog().feed([step, died]).reason is None


def test_what_a_start_script_misses_is_not_the_end_of_the_engine() -> None:
    missed = "/opt/llm/start.sh: line 3: nvidia-smi: command not found\nnvtop: error while loading shared libraries: libudev.so.1\n"
    step = "(EngineCore pid=9) INFO 10-22 09:33:48 [gpu_model_runner.py:2338] Starting to load model /m...\n"
    assert diagnose_as(Kind.JOURNAL, missed + step)["state"] == "loading"
    assert diagnose_as(Kind.JOURNAL, "/opt/llm/start.sh: line 9: exec: vllm: not found\n")["reason"] == Reason.EXEC_FAILED


def test_memory_does_not_grow_with_the_log() -> None:
    class Endless:
        def __init__(self, blocks: int) -> None:
            self.left, self.count = blocks, 0

        def read(self, _size: int, /) -> bytes:
            self.left -= 1
            self.count += 1
            where = f"11-30 03:36:{self.count % 60:02} [x.py:{self.count}]"
            line = f"(EngineCore pid={self.count}) ERROR {where} Error number {self.count}\n".encode()
            return b"" if self.left < 0 else line * 500

    def peak(blocks: int) -> int:
        tracemalloc.start()
        read_stream(Endless(blocks))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few = peak(2)
    assert peak(6) < few * 1.5 + 2**20


def test_a_line_without_an_end_is_cut() -> None:
    log = b"x" * 3_000_000 + b"\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.00s/it]"
    found = diagnose_journal(read_stream(io.BytesIO(log)))
    assert (found["done"], found["total"]) == (1, 2)


def test_a_stream_whose_beginning_was_read() -> None:
    ahead = Ahead(b"abcd", io.BytesIO(b"efgh"))
    assert [ahead.read(3), ahead.read(3), ahead.read(3), ahead.read(3), ahead.read(3)] == [b"abc", b"d", b"efg", b"h", b""]


def test_kinds_have_all_their_keys() -> None:
    show = diagnose_as(Kind.SYSTEMCTL_SHOW, "ActiveState=failed\nResult=oom-kill\n")
    assert (show["state"], show["reason"], show["exit_status"]) == ("failed", Reason.HOST_OUT_OF_MEMORY, None)
    gpu = diagnose_as(Kind.GPU, "index, memory.used [MiB]\n0, 3 MiB\n")
    assert (gpu["gpu_freed"], gpu["processes"], gpu["gpus"][0]["used_mib"]) == (True, [], 3)
    failed = diagnose_as(Kind.GPU, "Failed to initialize NVML: Driver/library version mismatch\n", status=18)
    assert (failed["gpu_freed"], failed["reason"]) == (None, Reason.DRIVER_LIBRARY_MISMATCH)
    assert diagnose_as(Kind.UNIT, "[Service]\nExecStart=/bin/true x\n")["argv"] == ["/bin/true", "x"]
    command = diagnose_as(Kind.COMMAND, "$ true\nexit status: 0\nstdout: (empty)\nstderr: (empty)\n")
    assert (command["command"], command["reason"], command["retriable"]) == ("executed", None, None)
    page = "vllm:spec_decode_num_drafts_total 4\nvllm:spec_decode_num_draft_tokens_total 8\nvllm:spec_decode_num_accepted_tokens_total 6\n"
    metrics = diagnose_as(Kind.METRICS, page)
    assert (metrics["engine"], metrics["mean_acceptance_length"], metrics["parse_errors"]) == ("vllm", 2.5, 0)
    assert diagnose_as(Kind.METRICS, page, before=page)["status"] == "never_drafted"


def test_another_start_in_one_journal() -> None:
    def entry(invocation: str, message: str) -> str:
        return json.dumps({"__REALTIME_TIMESTAMP": "1", "_SYSTEMD_INVOCATION_ID": invocation, "MESSAGE": message})

    first = [
        entry("a", "(EngineCore pid=1) ERROR 11-30 03:36:34 [x.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
    ]
    second = [entry("b", "(EngineCore pid=2) INFO 11-30 03:40:34 [x.py:1] Starting to load model m...")]
    assert diagnose_paste("\n".join(first))["reason"] == Reason.CUDA_OUT_OF_MEMORY
    assert diagnose_paste("\n".join(first + second))["state"] == "loading"


PIECES = [
    line
    for topic in ("loading", "failures", "gpus", "hosts", "counters", "versions")
    for case in cases(topic)
    for line in case["input"].split("\n")
]
LINES = st.one_of(st.sampled_from(PIECES), st.text(max_size=200), st.binary(max_size=80).map(lambda raw: raw.decode("utf-8", "replace")))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINES, max_size=12))
def test_any_lines_give_an_answer(lines: list[str]) -> None:
    json.dumps(diagnose_paste("\n".join(lines)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Kind)), st.lists(LINES, max_size=8))
def test_any_lines_of_any_kind_give_an_answer(kind: Kind, lines: list[str]) -> None:
    json.dumps(diagnose_as(kind, "\n".join(lines)))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_give_an_answer(raw: bytes) -> None:
    json.dumps(diagnose_journal(read_stream(io.BytesIO(raw))))


@pytest.mark.parametrize(
    "piece", ["(", "[", "{", " ", "a", "a.", "(a", "\\", '"', "=", ",", "0", "0 ", "%|", "Error", ": ", "é", "GiB ", "(EngineCore pid=1) "]
)
def test_no_pattern_takes_more_than_its_share_of_time(piece: str) -> None:
    begins = (
        "",
        "Loading ",
        "CUDA out of memory. ",
        "vllm:x",
        "GPU 0 has ",
        "[Service]\nExecStart=",
        "$ ssh ",
        "oom-kill:",
        "0, ",
        "pytest.",
    )
    begin = time.process_time()
    for start in begins:
        diagnose_paste(start + piece * (4_000 // len(piece)) + "!")
    assert time.process_time() - begin < 3.0


def test_a_page_without_figures_has_all_keys_of_one_with_figures() -> None:
    name = "vllm:spec_decode_num"
    full = diagnose_as(Kind.METRICS, f"{name}_drafts_total 9\n{name}_draft_tokens_total 27\n{name}_accepted_tokens_total 18\n")
    for text in ("<html>404</html>\n", "", "process_open_fds 3\n"):
        found = diagnose_as(Kind.METRICS, text)
        assert full.keys() == found.keys()
        assert (found["engine"], found["drafts"], found["comparable"], found["warnings"]) == (None, None, None, [])


def test_a_gpu_tool_without_a_word_leaves_it_unknown() -> None:
    pasted = diagnose_paste("$ nvidia-smi\nexit status: 9\n")
    failed = diagnose_as(Kind.GPU, "", status=9)
    assert (failed["gpu_freed"], failed["reason"], failed["evidence"]) == (None, pasted["reason"], pasted["evidence"])
    for status in (0, None):
        quiet = diagnose_as(Kind.GPU, "", status=status)
        assert (quiet["gpu_freed"], quiet["reason"]) == (None, None)
