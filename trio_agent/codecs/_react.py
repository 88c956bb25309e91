"""For models without tool calling of their own: a thought, an action and its input, line by line.

Knows nothing of how answers go wrong; ``_react_answer`` reads them.
"""

from __future__ import annotations

from typing import Final

import attrs

from .._messages import Message, Text, ToolCall, ToolResult
from .._model import ModelRequest
from .._ports import Decoded
from ._calls import NOT_READ, Malformed, decoded, dump, refused, repair_text
from ._history import History, media_of, output_of, replaced
from ._prompt import CATALOGUE, Offer, Prompt, Prompts, known_tools
from ._react_answer import read_answer

__all__ = ["ReActCodec"]

STOP: Final = "\nObservation:"
"""Where the model must stop: what comes next is the tool's to say."""

_TO_CALL: Final = """\
To use a tool, end your answer with these two lines, and wait for the Observation:
Action: <one tool's name>
Action Input: <its arguments, as one JSON object on one line>
One tool in an answer. A line "Thought: ..." may stand before. Observations come to you; never write them yourself."""
_TO_END: Final = "To end, answer:\nFinal Answer: <your answer>"
_TO_END_TYPED: Final = (
    "To end, answer:\nFinal Answer: <your answer>\nwhere the answer is JSON that this JSON Schema describes:\n"
)
_WISH: Final = (
    "Answer again in one of the two forms: the two lines 'Action: <tool>' and 'Action Input: <JSON object>', "
    "or 'Final Answer: <your answer>'."
)


def _told(message: Message) -> tuple[Message, ...]:
    """One message in the protocol's words; of several calls and their results, one for each."""
    if message.role == "tool":
        return tuple(_observation(result) for result in message.results)
    if message.role == "user" or message.finish_reason in NOT_READ:
        return (message,)
    text = message.text.strip()
    if message.calls:
        thought = f"Thought: {text}\n" if text else ""
        first, *rest = map(_action, message.calls)
        return (replaced(message, thought + first), *(Message("assistant", each, "stop") for each in rest))
    return (replaced(message, f"Final Answer: {text}"),) if text else (message,)


def _action(call: ToolCall) -> str:
    try:
        input = dump(call.input)
    except ValueError:
        input = " ".join(call.arguments.split())  # what the model wrote and was told is no good
    return f"Action: {' '.join(call.name.split())}\nAction Input: {input}"


def _observation(result: ToolResult) -> Message:
    mark = "" if result.status == "ok" else f" ({result.status})"
    told = f"Observation [{result.call_id}]{mark}: {output_of(result)}"
    return Message("user", (Text(told), *media_of([result])))


def _word(system: str | None, offer: Offer, instructions: str) -> Prompt:
    parts = [system]
    if offer.tools:
        parts.append(_TO_CALL)
    if offer.final:
        parts.append(_TO_END if offer.schema is None else _TO_END_TYPED + dump(offer.schema))
    if offer.tools:
        parts += f"{CATALOGUE}\n{offer.catalogue}", offer.duty
    parts.append(instructions)
    return Prompt("\n\n".join(part for part in parts if part))


@attrs.frozen
class ReActCodec:
    r"""The model is told to write ``Action:`` and ``Action Input:``, or ``Final Answer:``; one tool an answer.

    What it is sent: the tools and the choice among them become words in the system prompt, behind a blank
    line; each call of the history is told as the two lines, and each result as an ``Observation`` behind its
    call.  While there are tools, ``"\nObservation:"`` is one of the texts at which the answer ends.  With
    ``tool_choice`` ``"none"`` no tool is told of, with ``"required"`` or a name no final answer.  A request's
    ``output_schema`` is described as that of the final answer.

    What is read: the first action, with what was said before it as text; what the model invents behind it is
    cut.  Without an action the final answer, and without one the whole text.  Of the input the slips that
    models make are put right (see the guide); what was cut off is refused, and the model is asked again.
    """

    instructions: str = ""
    """Added to the protocol, at its end."""
    _history: History = attrs.field(factory=lambda: History(_told), init=False, repr=False, eq=False)
    _prompts: Prompts = attrs.field(
        default=attrs.Factory(
            lambda self: Prompts(lambda system, offer: _word(system, offer, self.instructions)), takes_self=True
        ),
        init=False,
        repr=False,
        eq=False,
    )

    @property
    def streams(self) -> bool:
        """Never: an action is known only when its input has come."""
        return False

    def encode(self, request: ModelRequest) -> ModelRequest:
        """The request in the protocol's words, without tools."""
        sampling = request.sampling
        if request.tools and request.tool_choice != "none" and STOP not in sampling.stop:
            sampling = attrs.evolve(sampling, stop=(*sampling.stop, STOP))
        return attrs.evolve(
            request,
            messages=self._history.told(request.messages),
            system=self._prompts.prompt(request).system,
            tools=(),
            tool_choice="auto",
            sampling=sampling,
            output_schema=None,
        )

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The answer: its text, or its one call under an id that repeats in no other turn.

        A message that has calls of its own, or that was no answer (a refusal), stays as it is.
        """
        text = message.text
        if message.calls or message.finish_reason in NOT_READ or not text.strip():
            return Decoded(message)
        try:
            said = read_answer(text, known_tools(request))
            if said is not None and said.calls and request.tool_choice == "none":
                raise Malformed("no tool can be called now")
        except Malformed as error:
            return refused(message, error)
        return Decoded(message) if said is None else decoded(message, said, request.turn)

    def repair(self, error: str, attempt: int) -> str:
        """What was wrong, and the two forms again; of a long error, its beginning."""
        return repair_text(error, attempt, _WISH)
