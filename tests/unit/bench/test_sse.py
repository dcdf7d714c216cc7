from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.bench.sse import Event, SseDecoder


def decode(*reads: bytes) -> list[tuple[str, str]]:
    decoder = SseDecoder()
    events = [event for at, read in enumerate(reads) for event in decoder.feed(read, float(at))]
    return [(event.name, event.data) for event in [*events, *decoder.close()]]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\n\r\ndata: b\r\n\n", ["a", "b"]),
        (b"data:a\ndata: b\ndata\ndata:  c\n\n", ["a\nb\n\n c"]),
        (b"\xef\xbb\xbfdata: a\n\n", ["a"]),
        (b": ping\n\nid: 7\n\nretry: 3\n\ndata: a\n\n", ["a"]),
        (b"data: a\n\ndata: b", ["a", "b"]),
        (b"data: a\n\ndata: b\n", ["a", "b"]),
        (b"datum: a\nData: b\n\n", []),
        (b"data: \xe2\x80\xa8x\n\n", ["\u2028x"]),
        (b"", []),
    ],
)
def test_the_rules(stream: bytes, events: list[str]) -> None:
    assert [data for _, data in decode(stream)] == events


def test_event_names_last_for_one_event() -> None:
    assert decode(b"event: error\ndata: a\n\ndata: b\n\n") == [("error", "a"), ("message", "b")]
    assert decode(b"event: error\n\ndata: b\n\n") == [("message", "b")]


def test_the_error_field_of_older_llama_servers_is_an_error_event() -> None:
    assert decode(b'error: {"code":400}\n\ndata: [DONE]\n\n') == [("error", '{"code":400}'), ("message", "[DONE]")]


def test_an_event_has_the_time_of_the_read_that_completed_it() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n", 1.0) == []
    assert decoder.feed(b"\ndata: b\r\n\r", 2.0) == [Event("a", 2.0), Event("b", 2.0)]
    assert decoder.feed(b"\ndata: c", 3.0) == []
    assert decoder.close() == [Event("c", 3.0)]


STREAM = (
    '\ufeffdata: {"a": "известни 你好 🙂"}\r\n\r\n: ping\r\n\r\nevent: e\r\ndata: 1\r\ndata: 2\r\n\r\nerror: x\n\ndata: [DONE]'.encode()
)


@pytest.mark.parametrize("place", range(len(STREAM) + 1))
def test_a_split_at_each_byte_changes_nothing(place: int) -> None:
    assert decode(STREAM[:place], STREAM[place:]) == decode(STREAM)


def test_byte_by_byte() -> None:
    assert decode(*(bytes([byte]) for byte in STREAM)) == decode(STREAM)


PARTS = [b"data:", b"data: x", b"error: e", b"event: n", b": c", b"id: 1", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", "д".encode(), b" "]


@given(st.lists(st.sampled_from(PARTS)), st.lists(st.booleans()))
def test_any_split_equals_none(parts: list[bytes], cut: list[bool]) -> None:
    stream = b"".join(parts)
    places = [0, *(place for place, here in zip(range(1, len(stream)), itertools.cycle(cut or [False]), strict=False) if here), len(stream)]
    reads = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert decode(*reads) == decode(stream)
