"""Check from a report of pytest that the tests were really run. Usage: python .ci/check_tests.py REPORT.xml"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

NATIVE = "tests.runtime.native."
FEWEST_NATIVE = 950  # tests of the native engine that pass
MOST_SKIPPED = 250


def findings(cases: Iterable[ElementTree.Element]) -> tuple[str, list[str]]:
    """(a line that counts, what is wrong)."""
    listed = list(cases)
    reasons = [(skipped.get("message") or "") for case in listed if (skipped := case.find("skipped")) is not None]
    native = sum(case.get("classname", "").startswith(NATIVE) and len(case) == 0 for case in listed)
    line = f"{len(listed)} tests, {native} of the native engine passed, {len(reasons)} skipped"
    wrong = [
        *([] if native >= FEWEST_NATIVE else [f"{native} tests of the native engine passed, expected {FEWEST_NATIVE}"]),
        *(
            []
            if len(reasons) <= MOST_SKIPPED
            else [f"{len(reasons)} tests were skipped, expected {MOST_SKIPPED} at most"]
        ),
        *([] if all(reasons) else [f"{sum(not reason for reason in reasons)} tests were skipped without a reason"]),
    ]
    counted = "".join(f"\n  {count:4} {reason}" for reason, count in Counter(reasons).most_common(8))
    return line + counted, wrong


def main() -> int:
    """Print the counts and the most frequent reasons; 1 when something is wrong."""
    line, wrong = findings(ElementTree.parse(Path(sys.argv[1])).iter("testcase"))
    print(line, *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
