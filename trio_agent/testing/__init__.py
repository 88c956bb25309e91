"""The test kit: scripted models, a server for them, and checkers of what the kernel promises.

Imports neither pytest nor hypothesis, so it works under any test runner and in plain programs.
"""

from __future__ import annotations

from ._answers import CUT as CUT
from ._answers import STALL as STALL
from ._answers import Answer as Answer
from ._answers import call as call
from ._answers import calls as calls
from ._answers import chunks as chunks
from ._answers import cut as cut
from ._answers import fail as fail
from ._answers import say as say
from ._answers import stall as stall
from ._answers import think as think
from ._order import EventOrder as EventOrder
from ._order import check_order as check_order
from ._script import Item as Item
from ._script import Rule as Rule
from ._script import ScriptedModel as ScriptedModel
from ._script import Turn as Turn
from ._server import ModelServer as ModelServer
from ._wirecheck import check_chat_body as check_chat_body
from ._wirecheck import check_history as check_history

__all__ = [
    "CUT",
    "STALL",
    "Answer",
    "EventOrder",
    "Item",
    "ModelServer",
    "Rule",
    "ScriptedModel",
    "Turn",
    "call",
    "calls",
    "check_chat_body",
    "check_history",
    "check_order",
    "chunks",
    "cut",
    "fail",
    "say",
    "stall",
    "think",
]
