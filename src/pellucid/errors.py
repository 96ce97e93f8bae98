"""Faults that the user can mend. The command line prints their message; no traceback is shown."""


class UserError(Exception):
    """Something the user can mend: the message says what was expected, what came, what to do.

    The command line exits with 1.
    """


class UsageError(UserError):
    """Wrong use of a command or of a setting. The command line exits with 2."""
