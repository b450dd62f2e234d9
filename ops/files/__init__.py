"""Operators that write variables to files and read them back."""
