"""What the commands of the command line do, one call and one result each: `fluidtool.run`, `fluidtool.transpile`, …

Nothing here prints or ends the process. What is worth telling while it happens goes to a `Watcher`.
"""
