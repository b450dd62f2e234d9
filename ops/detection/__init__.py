"""Detection: priors and anchors, box coding, suppression, target assignment, pooling of regions, losses, evaluation."""
