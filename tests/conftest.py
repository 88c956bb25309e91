"""What every test stands on: no network, no chance, no skip that goes unnoticed, and every log reloaded."""

from __future__ import annotations

import ipaddress
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.reloading import Reloading

ROOT = Path(__file__).parent.parent

# Examples are derived from the test itself, so that a failure on one machine is a failure on all; no
# deadline, because no test asserts a time.  `--hypothesis-profile=long` looks further, and elsewhere each time.
hypothesis.settings.register_profile("ci", derandomize=True, max_examples=100, deadline=None, database=None)
hypothesis.settings.register_profile("long", max_examples=5_000, deadline=None, print_blob=True)
hypothesis.settings.load_profile("ci")


# ------------------------------------------------------------------------------------- no network


def _is_local(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _refuse_the_network(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto"):
        address = args[1]
        if not isinstance(address, tuple):  # a Unix socket's path
            return
        host = address[0]
    else:
        return
    if not _is_local(host):
        raise RuntimeError(f"a test reached for the network: {event} {host!r}; only loopback is allowed")


# An audit hook cannot be got round by a library that keeps its own reference to `socket`.
sys.addaudithook(_refuse_the_network)


# --------------------------------------------------------------------------- no unnoticed skips


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out, and why, where it may be."""
    skipped = terminalreporter.getreports("skipped")
    if skipped and os.environ.get("TRIO_AGENT_NO_SKIPS") == "1":
        terminalreporter.section("TRIO_AGENT_NO_SKIPS: nothing may be left out here, and this was", red=True)
        for report in skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            terminalreporter.line(f"{report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With ``TRIO_AGENT_NO_SKIPS=1`` a skip is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if (
        os.environ.get("TRIO_AGENT_NO_SKIPS") == "1"
        and isinstance(reporter, pytest.TerminalReporter)
        and reporter.stats.get("skipped")
        and session.exitstatus == pytest.ExitCode.OK
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# ------------------------------------------------------------------------- every log is reloaded

_RELOADING = Reloading()


@pytest.fixture(scope="session", autouse=True)
def _reloading_is_installed() -> Iterator[None]:
    with _RELOADING.installed():
        yield


@pytest.fixture(autouse=True)
def reloading() -> Iterator[Reloading]:
    """Fails each test of whose runs one's log, written and read again, is another state than the run had.

    A test that plants such a difference takes what was found.
    """
    _RELOADING.take()
    yield _RELOADING
    found = _RELOADING.take()
    assert not found, "\n".join(["a log, reloaded, is not what its run had:", *found[:5]])


# ------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded provider traffic and tool schemas; tests that need it are skipped without it."""
    folder = Path(os.environ.get("TRIO_AGENT_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("the recorded data are not here: no folder ../shared, and TRIO_AGENT_SHARED names none")
    return folder


@pytest.fixture
def ids() -> Callable[[], str]:
    """A factory of ids that counts, so that a test that is run again sees the same ones."""
    count = itertools.count(1)
    return lambda: f"id{next(count)}"
