"""The groups in which the help of a command shows its options."""

MODEL, INPUTS, OUTPUT, SAFETY = "Model", "Inputs", "Output", "What the model may do"
RUNNING, CHECKPOINTS = "How to run", "Checkpoints"
NO_PANEL = "Options"
