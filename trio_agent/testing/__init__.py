"""The test kit: scripted models, a server for them, and checkers of what the kernel promises.

Imports neither pytest nor hypothesis, so it works under any test runner and in plain programs.
"""

from __future__ import annotations

from ._agent_world import AgentWorld as AgentWorld
from ._agent_world import Met as Met
from ._agent_world import Played as Played
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
from ._anthropic_shape import check_messages_body as check_messages_body
from ._bare_context import BareContext as BareContext
from ._contracts._case import Case as Case
from ._contracts._codec import codec_contract as codec_contract
from ._contracts._dispatcher import dispatcher_contract as dispatcher_contract
from ._contracts._provider import provider_contract as provider_contract
from ._contracts._store import store_contract as store_contract
from ._contracts._tool import tool_contract as tool_contract
from ._course_laws import COURSE_LAWS as COURSE_LAWS
from ._course_laws import RUN_LAWS as RUN_LAWS
from ._crash_laws import CRASH_LAWS as CRASH_LAWS
from ._crashes import explore_crashes as explore_crashes
from ._explorer import explore_cancellation as explore_cancellation
from ._faults import explore_faults as explore_faults
from ._findings import Finding as Finding
from ._findings import Law as Law
from ._findings import Report as Report
from ._general_laws import LAWS as LAWS
from ._order import EventOrder as EventOrder
from ._order import check_order as check_order
from ._people import Delayed as Delayed
from ._people import ScriptedApproval as ScriptedApproval
from ._people import ScriptedInput as ScriptedInput
from ._plan import ABORT as ABORT
from ._plan import CANCEL as CANCEL
from ._plan import INTERRUPT as INTERRUPT
from ._plan import Action as Action
from ._plan import Cut as Cut
from ._plan import Fault as Fault
from ._plan import Plan as Plan
from ._record import RecordingModel as RecordingModel
from ._record_laws import RECORD_LAWS as RECORD_LAWS
from ._replay import replay as replay
from ._replay_model import ReplayModel as ReplayModel
from ._run_world import RunWorld as RunWorld
from ._schedules import explore_schedules as explore_schedules
from ._scheduling import can_be_seeded as can_be_seeded
from ._script import Item as Item
from ._script import Rule as Rule
from ._script import ScriptedModel as ScriptedModel
from ._script import Turn as Turn
from ._seams import InjectedFault as InjectedFault
from ._seams import Seams as Seams
from ._server import ModelServer as ModelServer
from ._session_laws import SESSION_LAWS as SESSION_LAWS
from ._session_world import Forked as Forked
from ._session_world import SessionWorld as SessionWorld
from ._tool_explorer import ToolWorld as ToolWorld
from ._tool_explorer import explore_tool as explore_tool
from ._trial import Location as Location
from ._trial import Performed as Performed
from ._trial import Trial as Trial
from ._watched import Asked as Asked
from ._watched import Calls as Calls
from ._watched import Ran as Ran
from ._watched import WatchedListener as WatchedListener
from ._watched import WatchedStore as WatchedStore
from ._wirecheck import check_chat_body as check_chat_body
from ._wirecheck import check_history as check_history

__all__ = [
    "ABORT",
    "CANCEL",
    "COURSE_LAWS",
    "CRASH_LAWS",
    "CUT",
    "INTERRUPT",
    "LAWS",
    "RECORD_LAWS",
    "RUN_LAWS",
    "SESSION_LAWS",
    "STALL",
    "Action",
    "AgentWorld",
    "Answer",
    "Asked",
    "BareContext",
    "Calls",
    "Case",
    "Cut",
    "Delayed",
    "EventOrder",
    "Fault",
    "Finding",
    "Forked",
    "InjectedFault",
    "Item",
    "Law",
    "Location",
    "Met",
    "ModelServer",
    "Performed",
    "Plan",
    "Played",
    "Ran",
    "RecordingModel",
    "ReplayModel",
    "Report",
    "Rule",
    "RunWorld",
    "ScriptedApproval",
    "ScriptedInput",
    "ScriptedModel",
    "Seams",
    "SessionWorld",
    "ToolWorld",
    "Trial",
    "Turn",
    "WatchedListener",
    "WatchedStore",
    "call",
    "calls",
    "can_be_seeded",
    "check_chat_body",
    "check_history",
    "check_messages_body",
    "check_order",
    "chunks",
    "codec_contract",
    "cut",
    "dispatcher_contract",
    "explore_cancellation",
    "explore_crashes",
    "explore_faults",
    "explore_schedules",
    "explore_tool",
    "fail",
    "provider_contract",
    "replay",
    "say",
    "stall",
    "store_contract",
    "think",
    "tool_contract",
]
