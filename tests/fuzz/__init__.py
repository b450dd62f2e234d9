"""Campaigns of random and mutated input: `python -m tests.fuzz TARGET --minutes N --seed S`.

A target is a module of this folder with one function, `search(budget)`, which tries cases until the budget is spent and yields
the findings. Whatever was found and mended stays as an ordinary test beside the code that was at fault.
"""
