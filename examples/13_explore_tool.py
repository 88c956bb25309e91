"""Your tool, cut at each of its points: two ways to save a file, and an explorer that convicts one of them.

No model, no agent and no network: ``explore_tool`` calls a tool once for each point at which it can be cancelled,
and asks after each call whether what must be true of the outside world is true.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from trio_agent import tool
from trio_agent.testing import ToolWorld, Trial, explore_tool

OLD, NEW = "an old\nstory\n", "a new\nand longer\nstory\n"


@tool
async def overwrite(path: str, text: str) -> str:
    """Save a text file, in the way that comes to mind first."""
    async with await trio.open_file(path, "w") as file:  # from here on the old text is gone,
        for line in text.splitlines(keepends=True):
            await file.write(line)  # and until the last line the new one is not all there
    return "saved"


@tool(lane=lambda input: input["path"])  # two calls for one file run one after the other: they share a draft
async def replace(path: str, text: str) -> str:
    """Save a text file: all of it, or nothing."""
    draft = trio.Path(f"{path}.draft")
    try:
        async with await draft.open("w") as file:  # cut anywhere in this block, nothing has happened to the file
            for line in text.splitlines(keepends=True):
                await file.write(line)
            await file.flush()
            await trio.to_thread.run_sync(os.fsync, file.fileno())  # on the disk, before the name points to it
        await draft.replace(path)  # cut before it begins or not at all: Trio waits for a thread that works
    except BaseException:
        with trio.move_on_after(5, shield=True):  # what is cut stays cut: without the shield, this would be too
            await draft.unlink(missing_ok=True)
        raise
    return "saved"  # nothing is awaited since the replacement, so no cut can hide it


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)

        def start_again() -> dict[str, str]:
            for path in folder.iterdir():
                path.unlink()
            (folder / "story").write_text(OLD)
            return {"path": str(folder / "story"), "text": NEW}

        def it_saves_all_or_nothing(trial: Trial[ToolWorld]) -> None:
            """The file is new if the tool has returned and old if it has not, and no draft lies beside it."""
            found = {path.name: path.read_text() for path in folder.iterdir()}
            assert found == {"story": NEW if trial.world.returned else OLD}, f"found {found}"

        for saver in overwrite, replace:
            # Files are read and written in threads.  Virtual time shall not jump as soon as one is waited for.
            report = explore_tool(saver, start_again, laws=[it_saves_all_or_nothing], autojump_threshold=0.05)
            print(f"{saver.name}: {report}\n")


main()
