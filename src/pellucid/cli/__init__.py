"""One file per verb of the command line; each has `run(arguments) -> exit code`."""
