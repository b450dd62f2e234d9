"""What must survive faults."""
