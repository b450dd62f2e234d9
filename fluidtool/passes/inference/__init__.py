"""Rewrites of inference programs. Each gives the same numbers with less work, in place, and says why where it did not."""
