"""Training of programs from files: `open_programs`, `Examples`, `Training` (what `fluidtool train` does)."""

from fluidtool.training.checkpoint import CheckpointPlan, Position
from fluidtool.training.examples import Examples, Order, Stream, stream_of
from fluidtool.training.loop import Step, Training
from fluidtool.training.programs import TrainingPrograms, find_loss, open_programs

__all__ = [
    "CheckpointPlan",
    "Examples",
    "Order",
    "Position",
    "Step",
    "Stream",
    "Training",
    "TrainingPrograms",
    "find_loss",
    "open_programs",
    "stream_of",
]
