"""What others wrote cannot move a terminal's cursor."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trio_agent.cli._tally import plural
from trio_agent.cli._words import printable


@given(st.text())
def test_no_control_character_is_left_but_line_ends_and_tabs(text: str) -> None:
    assert not [c for c in printable(text) if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_what_is_only_words_is_left_alone(text: str) -> None:
    assert printable(text) == text


def test_an_escape_sequence_loses_its_escape() -> None:
    assert printable("a\x1b[2Jb\rc\x9bd\ne\tf\ud800") == "a[2Jbcd\ne\tf"


def test_one_is_not_many() -> None:
    assert [plural(count, "call") for count in (0, 1, 2, 1000)] == ["0 calls", "1 call", "2 calls", "1,000 calls"]
