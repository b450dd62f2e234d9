"""Every command by its name: a module here whose function of that name it is, and its line in the help.

A module is imported when its command is called. A new command is a new file and a row here.
"""

COMMANDS: dict[str, str] = {
    "run": "Run a model; show, save or compare its outputs.",
    "profile": "Show how long each operator and step takes, and how fast it is.",
    "inspect": "Show what a model is: inputs, outputs, operators, parameters.",
    "view": "Draw a model as a graph: a page with search and details, or SVG.",
    "prune": "Reduce a model to what the given outputs need, and save it.",
    "reshape": "Change the shapes of a model's inputs, such as its batch size.",
    "quantize": "Make a model compute in 8 bits; show how its outputs change.",
    "convert": "Save a model in another layout or format, such as ONNX.",
    "params": "List, merge, split, rename or compare parameters; show statistics.",
    "train": "Train programs with optimizer operators; save their parameters.",
    "transpile": "Rewrite a program: fuse operators, save memory, distribute.",
    "launch": "Start and supervise all roles of a distributed job.",
    "diff": "Show the differences between two programs.",
    "compare": "Run two models or engines and find the first value that differs.",
    "debug": "Reduce a model to the smallest part that still shows a fault.",
    "check": "Find faults in a model without running it.",
    "exec": "Run a Python script that imports paddle, without Paddle.",
    "ops": "Show which operators are implemented, or how one is declared.",
    "completion": "Print a script that completes command lines in bash, zsh or fish.",
    "help": "Show the help of a command or topic, or what an error code means.",
    "version": "Show the version of fluidtool, Python, numpy and the engines.",
}
