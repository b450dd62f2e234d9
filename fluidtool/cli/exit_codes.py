"""What each exit code means: for `fluidtool --help`, `fluidtool help exit-codes` and the documents."""

from __future__ import annotations

from fluidtool import errors

EXIT_CODES = (
    (errors.EXIT_OK, "success"),
    (errors.EXIT_FINDING, "a finding of check or diff, or outputs that differ (--expect, --verify)"),
    (errors.EXIT_USAGE, "an invalid option, name, shape or size, or an access that is not allowed"),
    (errors.EXIT_UNREADABLE, "a file that cannot be read or written"),
    (errors.EXIT_UNSUPPORTED, "an operator that fluidtool does not support"),
    (errors.EXIT_NOT_FINITE, "NaN or infinity, found by --check-nan"),
    (errors.EXIT_SUPERSEDED, "a server that another copy of it has replaced (launch --replicas 2)"),
    (errors.EXIT_INTERNAL, "a bug in fluidtool"),
    (errors.EXIT_INTERRUPTED, "interrupted"),
)
