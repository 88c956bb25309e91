"""A person at a terminal: asked for permissions, and what tools want to know.

Shows what a model wrote and lets none of it move the cursor.  Knows neither agents nor runs.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final, TextIO, final

from .._facts import ApprovalRequest, InputRequest
from .._ports import Allow, Deny, Suspend
from ._line_input import line_input
from ._shown import begun, harmless, indented, one_line, pretty

__all__ = ["TerminalApproval", "TerminalInput"]

LINES: Final = 40
"""Lines of an input or of a question that are shown at first."""

CHARACTERS: Final = 4_000
"""Characters of it that are shown at first."""

SHORT: Final = 200
"""Characters of a name, or of a reason."""


@final
class _Terminal:
    """Where a person is asked: one question at a time, whoever asks."""

    def __init__(self, stdin: TextIO | None, stdout: TextIO | None) -> None:
        self._stdin = stdin
        self._stdout = stdout

    @asynccontextmanager
    async def question(self, text: str) -> AsyncGenerator[None]:
        """Show a question when it is its turn; the block reads the answer."""
        stdin = self._input
        if stdin is None:
            self.say(text)
            yield
            return
        async with line_input(stdin).lock:
            line_input(stdin).forget_what_was_typed(stdin)
            self.say(text)
            yield

    @property
    def _input(self) -> TextIO | None:
        # Looked up each time: a program may replace it, and one without a console has none.
        stdin: TextIO | None = sys.stdin if self._stdin is None else self._stdin
        return None if stdin is None or stdin.closed else stdin

    def say(self, text: str, end: str = "\n") -> None:
        """Write to the terminal; what its encoding has not is escaped."""
        stdout = sys.stdout if self._stdout is None else self._stdout
        encoding = stdout.encoding or "utf-8"
        stdout.write(f"{text}{end}".encode(encoding, "backslashreplace").decode(encoding))
        stdout.flush()

    async def line(self, prompt: str) -> str | None:
        """What the person types; ``None`` if that is Ctrl-D, or if nobody is there.  A checkpoint."""
        self.say(prompt, end="")
        answered = False
        try:
            line = None if self._input is None else await line_input(self._input).line(self._input)
            answered = line is not None
        finally:
            if not answered:  # the cursor still stands behind the prompt
                with suppress(OSError, ValueError):
                    self.say("")
        return line


@final
class TerminalApproval:
    """Asks in the terminal before a call runs: ``Agent(..., approval=TerminalApproval())``.

    Shows the tool, the input and the reason, and takes y(es), n(o) or l(ater); after a no, a reason may be typed for the
    model to read.  *Later* and Ctrl-D are :class:`~trio_agent.Suspend`, so without a terminal (a closed standard input,
    ``/dev/null``) every call waits for ``resume``.  A long input is shown in part, and whole on demand.

    Questions are asked one at a time, also of several agents.  What was typed before a question was shown does not answer
    it.  An abort or a cancellation ends the wait, and takes no line from whoever reads next; but on Windows, where a console
    cannot be waited for, that wait ends with the line that it waits for, which is dropped.

    Args:
      stdin: where answers are read, ``sys.stdin`` by default: from its descriptor, past Python's own buffer.
      stdout: where questions are shown, ``sys.stdout`` by default.
    """

    def __init__(self, *, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        self._terminal = _Terminal(stdin, stdout)

    async def __call__(self, request: ApprovalRequest) -> Allow | Deny | Suspend:
        """Ask.  A checkpoint."""
        terminal = self._terminal
        whole = pretty(request.arguments)
        shown = begun(whole, LINES, CHARACTERS)
        is_whole = shown == whole
        text = f"\n{one_line(request.name, SHORT)} wants to run with\n{indented(shown)}"
        if not is_whole:
            text += f"\n  ... and {len(whole) - len(shown):,} more characters"
        if request.reason:
            text += f"\n({one_line(request.reason, SHORT)})"
        prompt = "allow? [y]es / [n]o / [l]ater" + ("" if is_whole else " / [s]how all") + ": "
        async with terminal.question(text):
            while True:
                answer = await terminal.line(prompt)
                match answer if answer is None else answer.strip().lower():
                    case "y" | "yes":
                        return Allow()
                    case "n" | "no":
                        return Deny(await terminal.line("reason (may be empty): ") or "")
                    case "l" | "later" | None:
                        return Suspend()
                    case "s" | "show all" if not is_whole:
                        terminal.say(indented(whole))
                    case _:
                        terminal.say("Please type y, n or l.")


@final
class TerminalInput:
    """Asks in the terminal what a tool wants to know: ``Agent(..., input=TerminalInput())``.

    The answer is one line, which may be empty; Ctrl-D is :class:`~trio_agent.Suspend`: it comes later, with ``resume``.
    The rest as with :class:`TerminalApproval`.

    Args:
      stdin: where answers are read, ``sys.stdin`` by default.
      stdout: where questions are shown, ``sys.stdout`` by default.
    """

    def __init__(self, *, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        self._terminal = _Terminal(stdin, stdout)

    async def __call__(self, request: InputRequest) -> str | Suspend:
        """Ask.  A checkpoint."""
        whole = harmless(request.question.expandtabs())
        shown = begun(whole, LINES, CHARACTERS)
        text = f"\na tool asks (call {one_line(request.call_id, SHORT)}):\n{indented(shown)}"
        if shown != whole:
            text += f"\n  ... and {len(whole) - len(shown):,} more characters"
        async with self._terminal.question(text):
            answer = await self._terminal.line("answer (Ctrl-D: later): ")
        return Suspend() if answer is None else answer
