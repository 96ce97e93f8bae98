"""Learning: optimisers, schedules, the loop, checkpoints that survive any moment."""
