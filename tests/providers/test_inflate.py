"""A body that something in between has compressed."""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import ProviderError
from trio_agent.providers._inflate import MAX_PIECE, inflater

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "": bytes,
    " identity ": bytes,
}


@given(st.sampled_from(sorted(PACK)), st.binary(max_size=300), st.data())
def test_wherever_a_compressed_body_is_cut_it_reads_the_same(name: str, body: bytes, data: st.DataObject) -> None:
    sent = PACK[name](body)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(sent)), max_size=5)))
    edges = [0, *cuts, len(sent)]
    inflate = inflater(name)
    assert b"".join(inflate(sent[a:b]) for a, b in itertools.pairwise(edges)) == body


def test_a_damaged_body_is_an_error() -> None:
    with pytest.raises(ProviderError, match="cannot be decompressed"):
        inflater("gzip")(b"this is no gzip")


def test_an_encoding_that_nobody_asked_for_is_named() -> None:
    with pytest.raises(ProviderError, match="'br', which was not asked for"):
        inflater("br")


def test_a_piece_may_grow_only_so_far() -> None:
    with pytest.raises(ProviderError, match="more than"):
        inflater("gzip")(gzip.compress(bytes(MAX_PIECE + 1)))
