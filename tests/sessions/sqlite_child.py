"""A program of its own that uses a store, and tells what it has done line by line: `python -m ... ROLE FILE ...`."""

from __future__ import annotations

import os
import resource
import sys

import trio

from tests.sessions.sqlite_stage import REAL, fill, notes
from trio_agent import SessionConflict, StoreFailed, write_fact
from trio_agent.sessions import SQLiteStore


def tell(*words: object) -> None:
    # One write a line: whoever kills this program gets whole lines or none.
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def append(path: str, name: str) -> None:
    """Three writers append for ever; what has returned is acknowledged."""

    async def write(session: str) -> None:
        head = await store.head(session)
        while True:
            head = await store.append(session, notes(head + 1, 1 + head % 4, session, 300), expected_head=head)
            tell(session, head)

    async with SQLiteStore(path, durability="process") as store, trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(write, f"{name}{number}")


async def compete(path: str, name: str) -> None:
    """Open a file that may not be there yet, when told to; append to a log of one's own, and to one that all write."""
    tell("ready")
    sys.stdin.readline()
    conflicts = 0
    async with SQLiteStore(path, durability="process", busy_timeout=60) as store:
        for _ in range(20):
            await fill(store, name)
            while True:
                head = await store.head("all")
                try:
                    await store.append("all", notes(head + 1, 1, name), expected_head=head)
                    break
                except SessionConflict:
                    conflicts += 1
        await store.check()
    tell("done", conflicts)


async def once(path: str, name: str) -> None:
    """Append once, when told to, after a head that was looked up before."""
    async with SQLiteStore(path, busy_timeout=60) as store:
        head = await store.head("s")
        tell("ready")
        sys.stdin.readline()
        try:
            tell(await store.append("s", notes(head + 1, 2, name), expected_head=head))
        except SessionConflict as error:
            tell(error)


async def starve(path: str, name: str) -> None:
    """The system refuses to let the files grow: what is written meanwhile fails, and what comes later does not."""
    async with SQLiteStore(path) as store:
        await fill(store)
        size = os.stat(path + "-wal").st_size
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 6_000, hard))
        for count in (1, 50):
            try:
                tell(await store.append("s", notes(4, count, size=1_000), expected_head=3))
            except StoreFailed as error:
                tell(error)
        tell(len(await store.read("s")))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        tell(await store.append("s", notes(4, 50, size=1_000), expected_head=3))
        await store.check()


async def unprivileged(path: str, name: str) -> None:
    """Read and write what may not be written."""
    write_fact(notes(1, 1)[0])  # whatever is imported late is imported while it can be
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    store = SQLiteStore(path, busy_timeout=0.05)
    for session in ("s", "new"):
        try:
            tell(await fill(store, session))
        except StoreFailed as error:
            tell(error)
    await store.aclose()


ROLES = {role.__name__: role for role in (append, compete, once, starve, unprivileged)}


async def main(role: str, path: str, name: str) -> None:
    with trio.fail_after(REAL):  # whoever reads what this tells does not wait for ever
        await ROLES[role](path, name)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
