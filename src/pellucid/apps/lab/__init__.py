"""The lab: change one thing, repeat over seeds, get an honest interval."""
