"""A program of its own whom the operating system refuses to write: `python -m tests.hostile.refused ROLE FOLDER STORE`.

It tells line by line what its runs have come to.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import cast

import trio

from tests.hostile.shop import DOORS, REAL, SESSION, Disk, Shop, StoreName
from trio_agent import RunResult, SessionClosed, StoreFailed, write_fact
from trio_agent.testing import call, calls, say


async def tell(result: RunResult, shop: Shop) -> None:
    """What a run has come to, and how many of the facts that it has shown are not there."""
    there = [write_fact(fact) for fact in await shop.store.read(SESSION)]
    lost = sum(there[fact.seq - 1 : fact.seq] != [write_fact(fact)] for fact in shop.shown)
    code = getattr(result.error, "code", None)
    print(f"{result.stop_reason} {code}, paid {len(shop.paid)}, lost {lost}: {result.error or ''}", flush=True)


def limit(size: int) -> None:
    """Let no file of this program grow beyond so many bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


async def starve(disk: Disk) -> None:
    """Files may not grow by what a payment's result takes; then they may."""
    script = (calls(call("pay")), calls(call("pay")), say("No."), calls(call("pay")), say("It is paid."))
    shop = Shop(disk, *script, bill=40_000)
    await shop.store.append(SESSION, [], expected_head=0)  # whatever is made beside the file is made
    async with shop.agent.session(SESSION) as session:
        await session.steer("Be quick.")
        limit(max(each.stat().st_size for each in disk.folder.rglob("s.*")) + 30_000)
        await tell(await session.prompt("Pay."), shop)
        try:
            await session.prompt("Pay.")
        except SessionClosed as error:
            print("closed", error.code, flush=True)
    async with shop.agent.session(SESSION) as session:
        await tell(await session.prompt("x" * 40_000), shop)
    limit(resource.RLIM_INFINITY)
    async with shop.agent.session(SESSION) as session:
        await tell(await session.resume(), shop)


async def unprivileged(disk: Disk) -> None:
    """Nothing may be written in the folder."""
    with tempfile.TemporaryDirectory() as elsewhere:  # whatever is imported late is imported while it can be
        shop = Shop(Disk(Path(elsewhere), disk.kind))
        await shop.go("session")
        await shop.store.aclose()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for door in DOORS:
        shop = Shop(disk)
        try:
            await tell(await shop.go(door), shop)
        except StoreFailed as error:
            print(f"not entered {error}", flush=True)


ROLES = {role.__name__: role for role in (starve, unprivileged)}


async def main(role: str, folder: str, kind: str) -> None:
    with trio.fail_after(REAL):  # whoever reads what this tells does not wait for ever
        await ROLES[role](Disk(Path(folder), cast("StoreName", kind)))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
