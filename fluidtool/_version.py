"""The version, stated once: the packaging reads it from here."""

__version__ = "0.1.0"
