"""Processes that work together without servers: their programs, and the communicators that carry their values."""
