"""The program that :class:`Local` starts as a process of its own: llama.cpp's server, until standard input ends.

It is run as a file and imports nothing of this package, so that it begins at once.  One line of JSON on standard
input says what to serve, one on standard output where it is served, or why it cannot be.  Standard input ends when
whoever started this is gone, however that went.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from typing import Any, Final, TextIO

WARNINGS: Final = 2
"""How much llama.cpp tells on standard error: what went wrong and what may, not each request."""


def serve() -> None:
    """Serve until standard input ends."""
    orders = json.loads(sys.stdin.buffer.readline())
    told = _own_output()
    # Before the model is loaded, which takes long: then, too, somebody may be gone.
    watch = threading.Thread(target=_leave_with_whoever_started_this, daemon=True)
    watch.start()
    library: Any = importlib.import_module("xllamacpp")  # Any: it comes without types
    try:
        server = library.Server(_parameters(library, orders))
    except RuntimeError as error:
        _tell(told, {"error": f"llama.cpp cannot serve {orders['model_path']}: {error}"})
        sys.exit(1)
    _tell(told, {"address": server.listening_address})
    watch.join()


def _own_output() -> TextIO:
    """Standard output, kept for our one line; what the library prints there goes to standard error."""
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return told


def _parameters(library: Any, orders: dict[str, Any]) -> Any:  # Any: of a library without types; JSON
    parameters = library.CommonParams()
    parameters.model.path = orders["model_path"]
    parameters.model_alias = {orders["model"]}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0  # the system knows one that is free
    parameters.api_keys = [orders["api_key"]]
    # The library shares its context out among those that are answered at the same time.
    parameters.n_parallel = orders["parallel"]
    parameters.n_ctx = orders["context_window"] * orders["parallel"]
    if orders["threads"] is not None:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = orders["threads"]
    parameters.use_jinja = True
    parameters.ui = False
    parameters.endpoint_slots = False  # it shows everybody's prompts
    parameters.verbosity = WARNINGS
    return parameters


def _tell(told: TextIO, line: dict[str, str]) -> None:
    told.write(json.dumps(line) + "\n")
    told.flush()


def _leave_with_whoever_started_this() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # what is being answered has nobody left to read it


if __name__ == "__main__":
    serve()
