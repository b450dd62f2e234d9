"""Check from a report of pytest that the tests were really run. Usage: python .ci/check_tests.py REPORT.xml"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

NATIVE = "tests.runtime.native."
FEWEST_NATIVE = 950  # tests of the native engine that pass

# Why a test may be skipped in the environment of the README. Any other reason is a finding, however few tests give it.
ALLOWED = (
    r"does not name the interpreter of a real Paddle",  # by hand, beside real Paddle
    r"pip install|(is|are) not installed|is installed|could not import",  # optional packages: later steps install most
    r"the generators are in the dev extra|\.ci/run builds it|\.ci/run has them",  # later steps
    r"this (build|processor)\b.* has no \w|no other [\w ]+ here",  # instruction sets of other processors
    r"there is no [\w ]+ (here|on this machine|beside this Python)|this (system|machine) (has|cannot)|the system (has|does)",
    r"[Pp]OSIX|/proc|Windows|other systems|there is no fork|cannot fork|which the system lacks|unreadable for root",
    r"needs (a browser|Linux|several loopback addresses)|there are no pseudo-terminals here|cannot be used here",
    r"there is a GPU",
    r"run by itself",  # its parts are tests of their own
    r"this copy (of the sources )?(is one without|has no)|not part of this copy",
    r"names no interpreter that has it",
)


def reason_of(skipped: ElementTree.Element) -> str:
    """Why a test was skipped; of a whole module pytest puts it into the text: ('path', line, 'Skipped: why')."""
    message = skipped.get("message") or ""
    if message != "collection skipped":
        return message
    found = re.search(r"Skipped: (.*?)['\"]\)\s*$", skipped.text or "", re.DOTALL)
    return found.group(1) if found else message


def findings(cases: Iterable[ElementTree.Element]) -> tuple[str, list[str]]:
    """(lines that count, what is wrong)."""
    listed = list(cases)
    reasons = Counter(reason_of(skipped) for case in listed if (skipped := case.find("skipped")) is not None)
    native = sum(case.get("classname", "").startswith(NATIVE) and len(case) == 0 for case in listed)
    line = f"{len(listed)} tests, {native} of the native engine passed, {reasons.total()} skipped"
    wrong = [
        *([] if native >= FEWEST_NATIVE else [f"{native} tests of the native engine passed, expected {FEWEST_NATIVE}"]),
        *(
            f"{count} tests were skipped for a reason that is not allowed: {reason or '(none)'}"
            for reason, count in reasons.items()
            if not any(re.search(allowed, reason) for allowed in ALLOWED)
        ),
    ]
    counted = "".join(f"\n  {count:4} {reason}" for reason, count in reasons.most_common())
    return line + counted, wrong


def main() -> int:
    """Print the counts and the reasons, most frequent first; 1 when something is wrong."""
    line, wrong = findings(ElementTree.parse(Path(sys.argv[1])).iter("testcase"))
    print(line, *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
