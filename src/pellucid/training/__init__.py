"""Training: settings, the loop, validation, and checkpoints that survive a crash."""
