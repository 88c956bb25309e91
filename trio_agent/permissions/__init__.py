"""Who may let a call run: the gate, and handlers that ask a person."""

from ._gate import Gate as Gate
from ._gate import suspend as suspend
from ._terminal import TerminalApproval as TerminalApproval
from ._terminal import TerminalInput as TerminalInput

__all__ = ["Gate", "TerminalApproval", "TerminalInput", "suspend"]
