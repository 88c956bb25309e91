"""The proof of the proof: bugs planted into copies of the kernel, each of them convicted, and its place named."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.mutants.patches import Hunk, PatchError, apply, parse
from tests.mutants.table import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
USED = sorted({mutant.exploration for mutant in MUTANTS})
LIMIT = 120
"""Real seconds after which a child counts as one that hangs; it takes one or two."""


# ----------------------------------------------------------------------------------------- the children


@attrs.frozen
class Verdict:
    """What the exploration of one copy came to."""

    folder: Path
    told: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.told["findings"]
        return found

    def at(self, place: str, law: str) -> dict[str, Any] | None:
        """The finding of a law at a place of the table."""
        return next((each for each in self.findings if (each["law"], self.where(each)) == (law, place)), None)

    def where(self, finding: dict[str, Any]) -> str:
        """The place of a finding, with the line as it stands in the code instead of its number."""
        name: str = finding["place"]
        found = re.fullmatch(r"(\S+) \((.+):(\d+)\)", name)
        if found is None:
            return name
        function, path, number = found[1], found[2], int(found[3])
        source = next(
            each for folder in (self.folder / "trio_agent", ROOT / "tests") if (each := folder / path).exists()
        )
        return f"{function}: {source.read_text(encoding='utf-8').splitlines()[number - 1].strip()}"


def place_of(mutant: Mutant) -> str:
    return mutant.function if mutant.line is None else f"{mutant.function}: {mutant.line}"


@attrs.frozen
class Court:
    """Explores copies of the package, two at a time, each in a process of its own."""

    folder: Path
    pool: ThreadPoolExecutor
    cases: dict[str, Future[Verdict]] = attrs.field(factory=dict[str, "Future[Verdict]"])

    def call(self, name: str, exploration: str, patch: str | None, hash_seed: str = "random") -> Future[Verdict]:
        """The verdict on one copy, asked for once."""
        if name not in self.cases:
            self.cases[name] = self.pool.submit(self._explore, self.folder / name, exploration, patch, hash_seed)
        return self.cases[name]

    @staticmethod
    def _explore(copy: Path, exploration: str, patch: str | None, hash_seed: str) -> Verdict:
        shutil.copytree(ROOT / "trio_agent", copy / "trio_agent", ignore=shutil.ignore_patterns("__pycache__"))
        if patch is not None:
            apply(patch, copy)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "tests.mutants.convict", exploration],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(ROOT))), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert Path(told["package"]) == copy / "trio_agent" / "__init__.py", "another package was imported"
        return Verdict(copy, told)


def table_of(court: Court) -> str:
    rows = [f"{'planted bug':36} {'runs':>5} {'broken':>6}  convicted by, at"]
    for mutant in MUTANTS:
        case = court.cases.get(mutant.name)
        if case is None or case.exception() is not None:
            continue
        told = case.result().told
        times = sum(each["times"] for each in told["findings"])
        rows.append(f"{mutant.name:36} {told['runs']:5} {times:6}  {', '.join(mutant.laws)}, {place_of(mutant)}")
    seconds = sum(case.result().told["seconds"] for case in court.cases.values() if case.exception() is None)
    return "\n".join([*rows, f"{len(rows) - 1} planted bugs, {seconds:.0f} s of CPU time"])


@pytest.fixture(scope="module")
def court(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    with ThreadPoolExecutor(2) as pool:
        court = Court(tmp_path_factory.mktemp("copies"), pool)
        for item in request.session.items:  # ahead of the tests that wait for them
            asked = getattr(item, "callspec", None)
            if item.path == Path(__file__) and asked is not None and "mutant" in asked.params:
                mutant: Mutant = asked.params["mutant"]
                court.call(mutant.name, mutant.exploration, mutant.patch)
        yield court
        print(f"\n{table_of(court)}")


# ----------------------------------------------------------------------------------------- the bugs


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_convicted_and_its_place_is_named(mutant: Mutant, court: Court) -> None:
    verdict = court.call(mutant.name, mutant.exploration, mutant.patch).result()
    for law in mutant.laws:
        finding = verdict.at(place_of(mutant), law)
        assert finding is not None, (
            f"{mutant.says}  {law} did not say so at {place_of(mutant)}:\n{verdict.told['text']}"
        )
        assert finding["token"]
        assert finding["again"], f"{finding['token']} does not break {law} again"


@pytest.mark.parametrize("exploration", USED)
def test_the_kernel_as_it_is_breaks_no_law_there(exploration: str, court: Court) -> None:
    verdict = court.call(f"unpatched, {exploration}", exploration, None).result()
    assert verdict.findings == [], verdict.told["text"]
    assert verdict.told["runs"] > 5


def test_every_process_finds_the_same_whatever_its_hash_seed(court: Court) -> None:
    mutant = next(each for each in MUTANTS if each.name == "settlement_skipped_under_a_cut")
    verdicts = [
        court.call(f"{mutant.name}, {seed}", mutant.exploration, mutant.patch, seed) for seed in ("0", "1", "20260")
    ]
    first, *others = (each.result().findings for each in verdicts)
    assert len(first) > 5
    assert others == [first, first]


def test_every_patch_is_in_the_table_once_and_the_other_way_round() -> None:
    patches = sorted(path.stem for path in (ROOT / "tests" / "mutants").glob("*.patch"))
    assert sorted(mutant.name for mutant in MUTANTS) == patches
    assert len({mutant.says for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_in_the_kernel_and_small(mutant: Mutant) -> None:
    hunks = parse(mutant.patch)
    assert {hunk.path.split("/")[1] for hunk in hunks} <= {"_kernel", "_core", "_session.py"}
    assert sum(len(set(hunk.new) ^ set(hunk.old)) for hunk in hunks) <= 12


# ----------------------------------------------------------------------------------------- the patches

PATCH = """\
--- a/song.txt
+++ b/song.txt
@@ -1,3 +1,3 @@
 one
-two
+deux
 three
"""


def applied(patch: str, text: str, folder: Path) -> str:
    (folder / "song.txt").write_text(text, encoding="utf-8")
    apply(patch, folder)
    return (folder / "song.txt").read_text(encoding="utf-8")


def test_a_patch_changes_its_lines_and_no_others(tmp_path: Path) -> None:
    assert parse(PATCH) == (Hunk("song.txt", ("one", "two", "three"), ("one", "deux", "three")),)
    assert applied(PATCH, "one\ntwo\nthree\nfour\n", tmp_path) == "one\ndeux\nthree\nfour\n"
    assert applied(PATCH, "zero\n\none\ntwo\nthree", tmp_path) == "zero\n\none\ndeux\nthree"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("one\n2\nthree\n", "these lines stand in it 0 times"),
        ("one\ntwo \nthree\n", "these lines stand in it 0 times"),
        ("one\ndeux\nthree\n", "these lines stand in it 0 times"),
        ("one\ntwo\nthree\n" * 2, "these lines stand in it 2 times"),
    ],
)
def test_a_patch_that_does_not_fit_exactly_once_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=f"song.txt: {why}"):
        applied(PATCH, text, tmp_path)
    assert (tmp_path / "song.txt").read_text(encoding="utf-8") == text


def test_a_patch_of_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"there is no song\.txt"):
        apply(PATCH, tmp_path)


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "changes nothing"),
        ("one\n", "expected a file or a hunk"),
        (PATCH.partition("@@")[0], "changes nothing"),
        (PATCH.replace("+++ b/song", "+++ b/dance"), r"expected '\+\+\+ b/song\.txt'"),
        (PATCH.replace("@@ -1,3", "@@ -1,4"), "expected a line of the hunk"),
        (PATCH.replace("@@ -1,3 +1,3", "@@ -1,2 +1,3"), "the hunk has not the lines that it says"),
        (PATCH.replace("-two\n+deux", " two"), "or changes none"),
        (PATCH + "and so on\n", "expected a file or a hunk"),
    ],
)
def test_what_is_no_patch_is_refused(patch: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=why):
        applied(patch, "one\ntwo\nthree\n", tmp_path)
