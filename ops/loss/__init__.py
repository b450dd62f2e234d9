"""Operators that compute losses."""
