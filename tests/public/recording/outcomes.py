"""Writes down how each unit test ends, whoever runs it: a line of JSON per test in the file that FLUIDTOOL_OUTCOMES names.

Runs on Python 3.7, too.
"""

import functools
import json
import os
import unittest

ENDINGS = {
    "addSuccess": "passed",
    "addExpectedFailure": "passed",
    "addSkip": "skipped",
    "addError": "failed",
    "addFailure": "failed",
    "addUnexpectedSuccess": "failed",
}


def message_of(error):
    """An exception's type and the first line of its message; a reason for skipping as it is."""
    if not isinstance(error, tuple):
        return str(error or "")
    lines = str(error[1]).strip().splitlines() or [""]
    return f"{error[0].__name__}: {lines[0][:300]}"


def install(path):
    """Have unittest's results write down what they are told; a forked process writes nothing."""
    owner = os.getpid()

    def write(test, ending, error):
        if os.getpid() == owner:
            with open(path, "a") as file:
                file.write(json.dumps({"test": test.id(), "ending": ending, "message": message_of(error)}) + "\n")

    def writing(method, ending):
        @functools.wraps(method)
        def told(self, test, error=None):
            write(test, ending, error)
            return method(self, test) if error is None else method(self, test, error)

        return told

    def of_part(method):
        @functools.wraps(method)
        def told(self, test, part, error):
            if error is not None:
                write(test, "failed", error)
            return method(self, test, part, error)

        return told

    for name, ending in ENDINGS.items():
        setattr(unittest.TestResult, name, writing(getattr(unittest.TestResult, name), ending))
    unittest.TestResult.addSubTest = of_part(unittest.TestResult.addSubTest)
