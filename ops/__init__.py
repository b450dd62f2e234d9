"""What every operator means: its schema, shape inference, portable kernel and gradient.

Nothing in here knows a device, a file or the command line. Importing this package imports no operator: the registry
finds the module of an operator when a program needs it.
"""

if __name__ == "ops":
    raise ImportError("this package is imported as fluidtool.ops, never as ops")
