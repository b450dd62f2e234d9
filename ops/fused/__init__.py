"""Operators that inference passes make of several others."""
