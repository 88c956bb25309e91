"""A thousand calls in one turn, at most a hundred at once, watched while they run.

The model is a function behind a real HTTP server on loopback, so no key and no network are needed: put any
provider in its place.  Every sixteenth page cannot be fetched; its call has an error result, and the rest go on.
"""

from collections import Counter

import trio

from trio_agent import Agent, ModelRequest, ToolExecutionEnd, ToolExecutionStart, tool
from trio_agent.providers import OpenAI
from trio_agent.testing import Answer, ModelServer, call, calls, say

PAGES = 1_000
AT_ONCE = 100


@tool(effect="pure")
async def fetch(page: int) -> str:
    """Fetch one page."""
    await trio.sleep(0.01 + page % 7 / 100)  # as if it came from far away
    if page % 16 == 0:
        raise ValueError(f"page {page} is gone")
    return f"This is page {page}."


def librarian(request: ModelRequest) -> Answer:
    """The model: asks for every page at once, and counts what it gets."""
    results = request.messages[-1].results
    if not results:
        return calls(*(call(fetch, page=page) for page in range(1, PAGES + 1)))
    return say(f"I have read {sum('This is page' in result.text for result in results):,} pages.")


async def main() -> None:
    running, most, statuses, ends = 0, 0, Counter[str](), list[int]()
    async with (
        ModelServer(librarian) as server,
        OpenAI("librarian-1", base_url=server.base_url) as model,
        Agent(model, tools=[fetch], max_parallel_tools=AT_ONCE).run("Read everything.") as run,
    ):
        async for event in run:
            match event:
                case ToolExecutionStart():
                    running += 1
                    most = max(most, running)
                case ToolExecutionEnd():
                    running -= 1
                    statuses[event.result.status] += 1
                    ends.append(event.index)
                    if len(ends) % 100 == 0:
                        print(f"{len(ends):>5,} of {PAGES:,} done, {running} in flight", flush=True)
                case _:
                    pass
    results = run.result.messages[2].results
    asked = run.result.messages[1].calls
    print(run.result.text)
    print(f"calls: {statuses['ok']} ok, {statuses['error']} failed; {most} in flight at most")
    print(f"ends came in the order of the calls: {ends == sorted(ends)}")
    in_order = [result.call_id for result in results] == [one.id for one in asked]
    print(f"results stand in the order of the calls: {in_order}")


trio.run(main)
