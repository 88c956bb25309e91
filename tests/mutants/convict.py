"""Explore the package that is on the path, and print what was found as JSON: ``python -m tests.mutants.convict NAME``.

A program of its own, since a process has one kernel: the tests put a copy of it, with a bug in it, on the path.
"""

from __future__ import annotations

import json
import sys
import time

import trio_agent
from tests.mutants.explorations import EXPLORATIONS, Exploration
from trio_agent.testing import Finding


def _again(exploration: Exploration, finding: Finding) -> bool:
    """Whether the law is broken again when the finding's trial is played again."""
    trial = exploration.replay(finding.token)
    law = next(law for law in exploration.laws if law.__name__ == finding.law)
    try:
        law(trial)
    except Exception:  # as an explorer has it: a law that cannot be checked is broken
        return True
    return False


def main(name: str) -> None:
    exploration = EXPLORATIONS[name]
    report = exploration.report()
    told = {
        "package": trio_agent.__file__,
        "runs": report.runs,
        "text": str(report),
        "findings": [
            {
                "law": finding.law,
                "place": finding.place.name,
                "complaint": finding.complaint,
                "token": finding.token,
                "times": finding.times,
                "again": _again(exploration, finding),
            }
            for finding in report.findings
        ],
        "seconds": time.process_time(),
    }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
