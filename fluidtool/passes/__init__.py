"""Passes: Program -> Program, each with reasons for what it did and did not do."""
