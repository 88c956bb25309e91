"""Who may let a call run: the gate, and handlers that ask a person."""

from ._gate import Gate as Gate
from ._gate import suspend as suspend

__all__ = ["Gate", "suspend"]
