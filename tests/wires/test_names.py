"""Every tool name has a legal one on the wire, no two the same, and the way back is exact."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from trio_agent.wires._names import WireNames

odd = st.text(st.sampled_from("ab._-/ é\U0001f98a"), max_size=4) | st.text(max_size=90) | st.just("x" * 90)


def test_names_that_look_alike_stay_apart() -> None:
    names = ["a.b", "a_b", "a b", "x" * 90, "Größe"]
    wire = [WireNames(names).to_wire(name) for name in names]
    assert len(set(wire)) == len(names)
    assert wire[1] == "a_b"
    assert wire[0].startswith("a_b_")


@given(st.lists(odd, unique=True))
def test_all_names_are_legal_and_unique_and_mapped_back(names: list[str]) -> None:
    mapped = WireNames(names)
    wire = [mapped.to_wire(name) for name in names]
    assert len(set(wire)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in wire)
    assert [mapped.to_original(name) for name in wire] == names
    assert [WireNames(names).to_wire(name) for name in names] == wire


@given(st.lists(odd | st.sampled_from(["1st", "-x", "_1st", "9" * 64, "0.5"]), unique=True))
def test_a_name_begins_with_a_letter_where_the_vendor_wants_that(names: list[str]) -> None:
    mapped = WireNames(names, letter_first=True)
    wire = [mapped.to_wire(name) for name in names]
    assert len(set(wire)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", name) for name in wire)
    assert [mapped.to_original(name) for name in wire] == names
    assert all(mapped.accepts(name) for name in wire)
    plain = WireNames(["1st", "-x"])
    assert [plain.to_wire(name) for name in ("1st", "-x")] == ["1st", "-x"]


@given(odd)
def test_a_name_is_the_same_in_every_request(name: str) -> None:
    assert WireNames([name, "other"]).to_wire(name) == WireNames(["x.y", name]).to_wire(name)


@given(odd)
def test_a_stand_in_that_is_another_tool_s_name_is_not_used(name: str) -> None:
    taken = WireNames([name]).to_wire(name)
    mapped = WireNames([name, taken])
    assert mapped.to_wire(taken) == taken
    assert (mapped.to_wire(name) == taken) == (name == taken)
    assert mapped.to_original(mapped.to_wire(name)) == name


@given(odd)
def test_a_name_of_no_tool_is_legal_too_and_means_itself_on_the_way_back(name: str) -> None:
    mapped = WireNames(["a.b"])
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", mapped.to_wire(name))
    assert mapped.to_original("nothing") == "nothing"
