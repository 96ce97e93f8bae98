"""Looking at what a model does."""
