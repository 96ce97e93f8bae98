"""The lab: compare variants of a model over several random seeds, with intervals."""
