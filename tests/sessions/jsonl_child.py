"""A program of its own that uses a folder, and tells what it has done line by line: `python -m ... ROLE FOLDER ...`."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Awaitable, Callable

import trio

from tests.sessions.jsonl_stage import LIMIT, fill, notes
from trio_agent import SessionConflict, SessionStore, StoreFailed, write_fact
from trio_agent.sessions import JSONLStore


def tell(*words: object) -> None:
    # One write a line: whoever kills this program gets whole lines or none.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def attempt(call: Callable[[], Awaitable[object]]) -> None:
    try:
        tell(await call())
    except StoreFailed as error:
        tell(error)


async def compete(folder: str, mark: str) -> None:
    """When told to, append to a session that others write as well, and to one of one's own."""
    tell("ready")
    sys.stdin.readline()
    conflicts = 0
    async with JSONLStore(folder, durability="process", busy_timeout=LIMIT) as store:
        for _ in range(25):
            await fill(store, mark)
            while True:
                head = await store.head("all")
                try:
                    await store.append("all", notes(head + 1, 2, mark), expected_head=head)
                    break
                except SessionConflict:
                    conflicts += 1
    tell("done", conflicts)


async def write(folder: str) -> None:
    """Append for ever; what has returned is acknowledged."""
    async with JSONLStore(folder, durability="process") as store:
        head = await store.head("s")
        while True:
            head = await store.append("s", notes(head + 1, 1 + head % 4, "x" * 2_000), expected_head=head)
            tell(head)


async def starve(folder: str) -> None:
    """No file may grow by more than some bytes: it is as if the disk were full, in the middle of a record."""
    async with JSONLStore(folder) as store:
        await fill(store, "s")
        size = os.stat(f"{folder}/s.jsonl").st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1_000, resource.RLIM_INFINITY))
        await attempt(lambda: store.append("s", notes(4, 50), expected_head=3))
        tell(os.stat(f"{folder}/s.jsonl").st_size - size)
        await attempt(lambda: store.append("new", notes(1, 50), expected_head=0))
        await attempt(lambda: store.fork("s", "fork", at=3))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size - 1, resource.RLIM_INFINITY))
        await attempt(lambda: store.fork("s", "other", at=3))
        tell(*sorted(os.listdir(folder)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        await attempt(lambda: store.append("s", notes(4, 50), expected_head=3))


async def unprivileged(folder: str) -> None:
    """Read and write where one may only read."""
    write_fact(notes(1, 1)[0])  # whatever is imported late is imported while it can be
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    store: SessionStore = JSONLStore(folder)
    await attempt(lambda: store.append("s", notes(4, 1), expected_head=3))
    await attempt(lambda: store.append("new", notes(1, 1), expected_head=0))
    await attempt(lambda: store.fork("s", "fork", at=1))
    await attempt(lambda: store.delete("s"))
    await attempt(lambda: store.head("s"))
    tell(len(await store.read("s")), *[info.session for info in await store.list()])


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    role.__name__: role for role in (compete, write, starve, unprivileged)
}


async def main(role: str, *words: str) -> None:
    with trio.fail_after(LIMIT):  # whoever reads what this tells does not wait for ever
        await ROLES[role](*words)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
