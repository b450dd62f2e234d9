"""Operators that draw random numbers, repeatable by seed."""
