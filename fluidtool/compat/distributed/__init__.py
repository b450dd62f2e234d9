"""`paddle.distributed` of Paddle 1.8.5: where files of a job are. `fluidtool launch` starts the processes."""
