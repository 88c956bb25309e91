"""The law that every run of every test is held against: its log, written and read again, is the state that it had.

Stands beside journals: it sees what they post and what they give to a store, and looks at each when a run of it ends,
and when it is closed.  Knows nothing of what a test is about, and of runs in other processes.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import attrs
import trio

from trio_agent import Fact, Limits, Message, SessionStore, read_fact, write_fact
from trio_agent._core._state import State, fold, state_of
from trio_agent._core._transcript import Transcript, View
from trio_agent._errors import describe
from trio_agent._facts import Stamped
from trio_agent._kernel import _journal
from trio_agent._kernel._journal import Journal
from trio_agent._written import _converter

__all__ = ["Reloading", "differences", "written_history"]

_KEPT: Final = 20_000
"""Lines that need not be read again: the runs of an exploration begin alike."""
_SHOWN: Final = 300
"""Characters of a difference that are told, on each side of it."""


# ------------------------------------------------------------------------------------ what is compared


def written_history(messages: Sequence[Message]) -> str:
    """A history as a text: each message as the log would have it."""
    return json.dumps([_converter().unstructure(message, Message) for message in messages])


def differences(live: State, reloaded: State) -> list[str]:
    """Where the one, in its written form, is not the other, byte for byte."""
    found: list[str] = []
    pairs = [(name, getattr(live, name), getattr(reloaded, name)) for name in _NAMES]
    # Kept up to date in live states, and lent to requests meanwhile.
    pairs.append(("visible", live.transcript.visible(), reloaded.transcript.visible()))
    for name, a, b in pairs:
        if type(a) is type(b) and (type(a) in _QUICK or not a) and a == b:
            continue
        one, other = _written(a), _written(b)
        if one != other:
            found.append(_difference(name, one, other))
    return found


_NAMES: Final = tuple(field.name for field in attrs.fields(State))
_QUICK: Final = frozenset({bool, int, str, type(None), set, Limits, Transcript, View})
"""Made of texts and whole numbers only: if two of these are equal, so is what would be written of them."""


def _written(value: object) -> str:
    return written_history(value) if isinstance(value, Transcript | View) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:  # Any: whatever stands in a state, and JSON
    if value is None or isinstance(value, int | str):
        return value
    if isinstance(value, Stamped):
        return write_fact(cast("Fact", value))
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, Mapping):  # a key may be a pair of numbers, and the order says who came first
        return [[key, _plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return _converter().unstructure(value)


def _difference(name: str, live: str, reloaded: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(live, reloaded, strict=False)) if a != b), 0)
    shown = slice(max(0, at - _SHOWN), at + _SHOWN)
    return f"{name}, from character {at} on:\n    live     {live[shown]}\n    reloaded {reloaded[shown]}"


# ------------------------------------------------------------------------------------- what is kept


@attrs.define(eq=False)
class _Book:
    """What one journal has said, and what has come of it."""

    reloaded: State = attrs.field(factory=State)
    """The fold of what was written and read again."""
    seen: int = 0
    """The head at the last look."""
    posted: list[Fact] = attrs.field(factory=list)
    """What is still to be written and read, of a journal with a store."""
    owed: list[Fact] = attrs.field(factory=list)
    """What the store has not been given."""
    given: int = 0
    """Up to where it was."""
    wrong: list[str] = attrs.field(factory=list)


class _Given:
    """A store as its journal sees it; nothing of it waits, so no task has a step more than without it."""

    def __init__(self, store: SessionStore, book: _Book) -> None:
        self.behind = store
        self._book = book

    def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> Awaitable[int]:
        book = self._book
        due = [expected_head, *map(id, facts)] == [book.given, *map(id, book.owed[: len(facts)])]
        if not due:
            given, owed = ([fact.kind for fact in each] for each in (facts, book.owed))
            book.wrong.append(
                f"behind {book.given} came {owed}, and behind {expected_head} the store was given {given}"
            )
        del book.owed[: len(facts)]
        book.given += len(facts)
        return self.behind.append(session, facts, expected_head=expected_head)

    def __getattr__(self, name: str) -> Any:  # Any: whatever the store has
        return getattr(self.behind, name)


class Reloading:
    """Watches the journals of this process while it is :meth:`installed`.

    Attributes:
      found: what was wrong, in words.
      looks: how often a log was reloaded.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.looks = 0
        self._books: WeakKeyDictionary[Journal, _Book] = WeakKeyDictionary()  # weak: tests look at what is freed
        self._loaded: dict[int, tuple[State, Sequence[Fact]]] = {}  # by the identity of the state that was made of it
        self.read = functools.lru_cache(_KEPT)(read_fact)

    def take(self) -> list[str]:
        """What was found so far; it is forgotten here."""
        found, self.found = self.found, []
        self._loaded.clear()
        return found

    def look(self, journal: Journal) -> None:
        """Reload what the journal has said since the last look, and hold its state against what that adds up to."""
        book = self._book(journal)
        head = journal.state.head
        if head != book.seen:
            facts = book.posted if journal.durable else journal.log[book.seen :]
            book.seen = head
            self.looks += 1
            try:
                for fact in facts:
                    fold(book.reloaded, self.read(write_fact(fact)))
                book.wrong += differences(journal.state, book.reloaded)
            except Exception as error:
                book.wrong.append(f"the log cannot be reloaded: {describe(error)}")
            book.posted.clear()
        self.found += [f"session {journal.session!r}: {text}" for text in book.wrong]
        book.wrong.clear()

    def _book(self, journal: Journal) -> _Book:
        book = self._books.get(journal)
        if book is None:
            book = self._books[journal] = _Book()
        return book

    # --- beside journals -----------------------------------------------------------------------------

    def _began(self, journal: Journal) -> None:
        _, facts = self._loaded.pop(id(journal.state), (None, ()))
        store = journal._store
        if store is not None:
            book = self._book(journal)
            book.given = journal.state.head
            book.posted += facts
            self.look(journal)
            journal._store = cast("SessionStore", _Given(store, book))

    def _posted(self, journal: Journal, facts: Sequence[Fact]) -> None:
        book = self._book(journal)
        book.posted += facts
        book.owed += facts

    def _ended(self, journal: Journal, until: float) -> None:
        """The journal has said all up to ``until``, and that is written, unless its store has failed."""
        if journal.durable and journal.failed is None:
            book = self._book(journal)
            if book.given < min(until, journal.state.head):
                kinds = [fact.kind for fact in book.owed]
                book.wrong.append(f"behind {book.given} the store was not given {kinds}, and nothing has failed")
        self.look(journal)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watch every journal."""
        kept = {name: getattr(Journal, name) for name in ("start", "post", "end_run", "close")}

        @trio.lowlevel.enable_ki_protection
        def loaded(facts: Sequence[Fact], session: str) -> State:
            state = state_of(facts, session)
            self._loaded[id(state)] = (state, facts)
            return state

        @trio.lowlevel.enable_ki_protection
        def start(journal: Journal, nursery: trio.Nursery) -> None:
            self._began(journal)
            kept["start"](journal, nursery)

        @trio.lowlevel.enable_ki_protection
        def post(journal: Journal, *facts: Fact) -> None:
            kept["post"](journal, *facts)
            if journal.durable:
                self._posted(journal, facts)

        @trio.lowlevel.enable_ki_protection
        def end_run(journal: Journal) -> None:
            kept["end_run"](journal)
            self._ended(journal, journal._run_until)

        @trio.lowlevel.enable_ki_protection
        def close(journal: Journal) -> None:
            store = journal._store
            if isinstance(store, _Given):
                journal._store = store.behind  # its claim is given back now
            kept["close"](journal)
            self._ended(journal, journal.state.head)

        for each in (start, post, end_run, close):
            setattr(Journal, each.__name__, each)
        _journal.state_of = loaded
        try:
            yield
        finally:
            _journal.state_of = state_of
            for name, method in kept.items():
                setattr(Journal, name, method)
