"""The same events whatever the cuts, and only CR, LF and CRLF end a line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._errors import ProviderError
from trio_agent.wires import EventStreamDecoder, ServerSentEvent

GOLDEN = (
    "\ufeff: a comment\n\n"
    "data: first\n\n"
    "data:no blank\r\n\r\n"
    "event: named\ndata: a\ndata: b\ndata:\n\n"
    ": between\rdata: carriage\r\r"
    "id: 7\nretry: 10\nunknown: x\ndata:  two blanks\n\n"
    "data\n\n"
    "event: without data\n\n"
    'data: {"a": "\u2028\u2029\u0085\x0b\x0c\x1c emoji \U0001f98a é"}\r\n\r\n'
    "\n\n\ndata: mixed\r\ndata: ends\r\n\n"
).encode()

EVENTS = [
    ServerSentEvent("", "first"),
    ServerSentEvent("", "no blank"),
    ServerSentEvent("named", "a\nb\n"),
    ServerSentEvent("", "carriage"),
    ServerSentEvent("", " two blanks"),
    ServerSentEvent("", ""),
    ServerSentEvent("", '{"a": "\u2028\u2029\u0085\x0b\x0c\x1c emoji \U0001f98a é"}'),
    ServerSentEvent("", "mixed\nends"),
]


def decode(stream: bytes, cuts: list[int] | range = range(0), limit: int = 1_000) -> list[ServerSentEvent]:
    decoder = EventStreamDecoder(limit)
    edges = sorted({0, len(stream), *cuts})
    found = [event for a, b in itertools.pairwise(edges) for event in decoder.receive(stream[a:b])]
    return found + decoder.end()


def test_a_stream_with_every_oddity_is_read() -> None:
    assert decode(GOLDEN) == EVENTS


@pytest.mark.parametrize("place", range(len(GOLDEN) + 1))
def test_a_cut_anywhere_changes_nothing(place: int) -> None:
    assert decode(GOLDEN, [place]) == EVENTS


def test_single_bytes_are_enough() -> None:
    assert decode(GOLDEN, range(len(GOLDEN))) == EVENTS


@given(st.lists(st.integers(0, len(GOLDEN))))
def test_cuts_anywhere_change_nothing(cuts: list[int]) -> None:
    assert decode(GOLDEN, cuts) == EVENTS


lines = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.tuples(lines, st.lists(lines, min_size=1, max_size=3)), max_size=5),
    st.sampled_from(["\n", "\r", "\r\n"]),
    st.data(),
)
def test_what_is_written_is_read(sent: list[tuple[str, list[str]]], end: str, data: st.DataObject) -> None:
    written = "".join(
        f"event: {name}{end}{''.join(f'data: {line}{end}' for line in texts)}:{name}{end}{end}" for name, texts in sent
    ).encode()
    cuts = data.draw(st.lists(st.integers(0, len(written)), max_size=10))
    assert decode(written, cuts) == [ServerSentEvent(name, "\n".join(texts)) for name, texts in sent]


tokens = st.sampled_from(
    [b"data: ", b"data:", b"event: ", b": ", b" ", b"\n", b"\r", b"\r\n", b"x", b"\xc3", b"\xef\xbb\xbf"]
)


@given(st.lists(tokens, max_size=30).map(b"".join), st.lists(st.integers(0, 200), max_size=20))
def test_any_bytes_are_read_the_same_whatever_the_cuts(stream: bytes, cuts: list[int]) -> None:
    assert decode(stream, [cut for cut in cuts if cut <= len(stream)]) == decode(stream)


def test_an_event_comes_as_soon_as_its_line_ends() -> None:
    decoder = EventStreamDecoder()
    assert decoder.receive(b"data: a\r") == []
    assert decoder.receive(b"\r") == [ServerSentEvent("", "a")]
    assert decoder.receive(b"\ndata: b\n\n") == [ServerSentEvent("", "b")]


@pytest.mark.parametrize("tail", ["data: last", "data: last\n", "data: last\r"])
def test_a_last_event_without_its_blank_line_counts(tail: str) -> None:
    assert decode(f"data: first\n\n{tail}".encode()) == [ServerSentEvent("", "first"), ServerSentEvent("", "last")]


def test_spaces_before_the_first_field_are_skipped_and_later_ones_are_not() -> None:
    assert decode(b" data: a\n\n data: b\n\ndata: c\n\n") == [ServerSentEvent("", "a"), ServerSentEvent("", "c")]


def test_bytes_that_are_not_utf_8_do_not_end_the_stream() -> None:
    assert decode(b"data: \xff!\n\n") == [ServerSentEvent("", "\ufffd!")]


@pytest.mark.parametrize(
    "stream",
    [b"data: " + b"x" * 30, b": " + b"x" * 30 + b"\n", b"data: " + b"x" * 30 + b"\n\n", b"data: 1234567\n" * 4],
)
def test_a_line_or_an_event_that_is_too_long_is_refused_whatever_the_cuts(stream: bytes) -> None:
    for cuts in ([], [3], range(len(stream))):
        with pytest.raises(ProviderError, match="longer than 20 bytes") as caught:
            decode(stream, cuts, limit=20)
        assert caught.value.code == "PROVIDER_ERROR"
        assert caught.value.retryable is False
