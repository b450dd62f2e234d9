"""What a role tells Prometheus: counters in its text format, over HTTP, if FLUIDTOOL_METRICS asks for it."""
