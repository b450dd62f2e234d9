"""Operators: schema, shape inference, portable kernel and gradient of each.

This package depends on no device, file or command line. Importing it imports no operator: the registry
finds the module of an operator when a program needs it.
"""

if __name__ == "ops":
    raise ImportError("this package is imported as fluidtool.ops, never as ops")
