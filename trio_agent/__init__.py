"""An agent kernel for Trio: the loop around a language model that survives being cut anywhere.

The floors of the house; imports go down only::

    6   cli
    5   testing
    4   _agent -> _session
    3   _kernel                  all concurrency of a run
    2   tools | permissions | sessions | providers   may touch trio, httpx, sqlite, threads
    1   _core | codecs | wires   decide, translate, decode: pure
    0   _middleware -> _ports -> _events -> _written -> _facts -> _model -> _messages -> _options -> _errors
"""

from __future__ import annotations

from ._agent import Agent as Agent
from ._core._resume import Answer as Answer
from ._errors import AgentError as AgentError
from ._errors import ConfigError as ConfigError
from ._errors import ErrorCode as ErrorCode
from ._errors import Failure as Failure
from ._errors import FatalToolError as FatalToolError
from ._errors import HookFailed as HookFailed
from ._errors import InternalError as InternalError
from ._errors import InvalidAnswer as InvalidAnswer
from ._errors import ListenerFailed as ListenerFailed
from ._errors import NotResumable as NotResumable
from ._errors import OutputError as OutputError
from ._errors import ProviderError as ProviderError
from ._errors import RequestError as RequestError
from ._errors import RunCancelled as RunCancelled
from ._errors import RunEnded as RunEnded
from ._errors import SessionBusy as SessionBusy
from ._errors import SessionClosed as SessionClosed
from ._errors import SessionConflict as SessionConflict
from ._errors import SessionCorrupt as SessionCorrupt
from ._errors import StoreFailed as StoreFailed
from ._errors import ToolFailed as ToolFailed
from ._events import Diagnostic as Diagnostic
from ._events import DiagnosticCode as DiagnosticCode
from ._events import Event as Event
from ._events import MessageDiscarded as MessageDiscarded
from ._events import MessageStart as MessageStart
from ._events import ModelCallStart as ModelCallStart
from ._events import Observation as Observation
from ._events import Phase as Phase
from ._events import PhaseChange as PhaseChange
from ._events import ReasoningDelta as ReasoningDelta
from ._events import RetryScheduled as RetryScheduled
from ._events import TextDelta as TextDelta
from ._events import ToolCallDelta as ToolCallDelta
from ._events import ToolExecutionUpdate as ToolExecutionUpdate
from ._events import ToolUse as ToolUse
from ._facts import AbortRequested as AbortRequested
from ._facts import AgentEnd as AgentEnd
from ._facts import AgentResume as AgentResume
from ._facts import AgentStart as AgentStart
from ._facts import ApprovalRequest as ApprovalRequest
from ._facts import ApprovalResolved as ApprovalResolved
from ._facts import ConfigChange as ConfigChange
from ._facts import Custom as Custom
from ._facts import Fact as Fact
from ._facts import InputRequest as InputRequest
from ._facts import InputResolved as InputResolved
from ._facts import MessageDelivered as MessageDelivered
from ._facts import MessageDraft as MessageDraft
from ._facts import MessageEnd as MessageEnd
from ._facts import MessageQueued as MessageQueued
from ._facts import ModelCallEnd as ModelCallEnd
from ._facts import ModelCallFailed as ModelCallFailed
from ._facts import Place as Place
from ._facts import Request as Request
from ._facts import Rewind as Rewind
from ._facts import StopReason as StopReason
from ._facts import ToolExecutionEnd as ToolExecutionEnd
from ._facts import ToolExecutionStart as ToolExecutionStart
from ._facts import TurnEnd as TurnEnd
from ._facts import TurnEndReason as TurnEndReason
from ._facts import TurnStart as TurnStart
from ._facts import Verdict as Verdict
from ._kernel._announcer import OnListenerError as OnListenerError
from ._kernel._live import SessionState as SessionState
from ._kernel._result import RunResult as RunResult
from ._kernel._run import Run as Run
from ._kernel._subscription import Subscription as Subscription
from ._messages import CustomBlock as CustomBlock
from ._messages import File as File
from ._messages import FinishReason as FinishReason
from ._messages import Image as Image
from ._messages import Message as Message
from ._messages import NativeBlock as NativeBlock
from ._messages import Origin as Origin
from ._messages import Reasoning as Reasoning
from ._messages import ResultStatus as ResultStatus
from ._messages import Role as Role
from ._messages import Text as Text
from ._messages import ToolCall as ToolCall
from ._messages import ToolResult as ToolResult
from ._middleware import Block as Block
from ._middleware import CallModel as CallModel
from ._middleware import CallTool as CallTool
from ._middleware import HookContext as HookContext
from ._middleware import Middleware as Middleware
from ._middleware import Replace as Replace
from ._middleware import Snapshot as Snapshot
from ._model import CallChunk as CallChunk
from ._model import Finish as Finish
from ._model import ModelChunk as ModelChunk
from ._model import ModelRequest as ModelRequest
from ._model import NativeChunk as NativeChunk
from ._model import ReasoningChunk as ReasoningChunk
from ._model import TextChunk as TextChunk
from ._model import ToolSpec as ToolSpec
from ._model import Usage as Usage
from ._model import UsageReport as UsageReport
from ._options import Effect as Effect
from ._options import Limits as Limits
from ._options import QueueMode as QueueMode
from ._options import Retry as Retry
from ._options import Sampling as Sampling
from ._options import ToolChoice as ToolChoice
from ._ports import Allow as Allow
from ._ports import ApprovalHandler as ApprovalHandler
from ._ports import Codec as Codec
from ._ports import Decoded as Decoded
from ._ports import Deny as Deny
from ._ports import Dispatcher as Dispatcher
from ._ports import Emit as Emit
from ._ports import InputHandler as InputHandler
from ._ports import Listener as Listener
from ._ports import ModelProvider as ModelProvider
from ._ports import PreparedCall as PreparedCall
from ._ports import SessionInfo as SessionInfo
from ._ports import SessionStore as SessionStore
from ._ports import Suspend as Suspend
from ._ports import ToolContext as ToolContext
from ._ports import Wire as Wire
from ._ports import WireRequest as WireRequest
from ._ports import WireResponse as WireResponse
from ._session import OnBusy as OnBusy
from ._session import Session as Session
from ._written import read_fact as read_fact
from ._written import write_fact as write_fact
from .tools import Tool as Tool
from .tools import tool as tool

__all__ = [
    "AbortRequested",
    "Agent",
    "AgentEnd",
    "AgentError",
    "AgentResume",
    "AgentStart",
    "Allow",
    "Answer",
    "ApprovalHandler",
    "ApprovalRequest",
    "ApprovalResolved",
    "Block",
    "CallChunk",
    "CallModel",
    "CallTool",
    "Codec",
    "ConfigChange",
    "ConfigError",
    "Custom",
    "CustomBlock",
    "Decoded",
    "Deny",
    "Diagnostic",
    "DiagnosticCode",
    "Dispatcher",
    "Effect",
    "Emit",
    "ErrorCode",
    "Event",
    "Fact",
    "Failure",
    "FatalToolError",
    "File",
    "Finish",
    "FinishReason",
    "HookContext",
    "HookFailed",
    "Image",
    "InputHandler",
    "InputRequest",
    "InputResolved",
    "InternalError",
    "InvalidAnswer",
    "Limits",
    "Listener",
    "ListenerFailed",
    "Message",
    "MessageDelivered",
    "MessageDiscarded",
    "MessageDraft",
    "MessageEnd",
    "MessageQueued",
    "MessageStart",
    "Middleware",
    "ModelCallEnd",
    "ModelCallFailed",
    "ModelCallStart",
    "ModelChunk",
    "ModelProvider",
    "ModelRequest",
    "NativeBlock",
    "NativeChunk",
    "NotResumable",
    "Observation",
    "OnBusy",
    "OnListenerError",
    "Origin",
    "OutputError",
    "Phase",
    "PhaseChange",
    "Place",
    "PreparedCall",
    "ProviderError",
    "QueueMode",
    "Reasoning",
    "ReasoningChunk",
    "ReasoningDelta",
    "Replace",
    "Request",
    "RequestError",
    "ResultStatus",
    "Retry",
    "RetryScheduled",
    "Rewind",
    "Role",
    "Run",
    "RunCancelled",
    "RunEnded",
    "RunResult",
    "Sampling",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionConflict",
    "SessionCorrupt",
    "SessionInfo",
    "SessionState",
    "SessionStore",
    "Snapshot",
    "StopReason",
    "StoreFailed",
    "Subscription",
    "Suspend",
    "Text",
    "TextChunk",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolContext",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "ToolFailed",
    "ToolResult",
    "ToolSpec",
    "ToolUse",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
    "Usage",
    "UsageReport",
    "Verdict",
    "Wire",
    "WireRequest",
    "WireResponse",
    "read_fact",
    "tool",
    "write_fact",
]
