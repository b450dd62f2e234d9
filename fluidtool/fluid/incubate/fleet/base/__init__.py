"""What the fleets of both kinds share: who plays which role, and the interface."""
