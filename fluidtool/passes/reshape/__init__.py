"""New shapes of inputs: which operators contain the old sizes, and how they can be changed to follow the inputs."""
