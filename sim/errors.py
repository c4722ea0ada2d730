"""Errors that are meant for the person at the command line."""


class UserError(Exception):
    """Input that is refused (the command exits with 2 and shows the message without a traceback).

    The message is complete in itself: it names the file, the key and the value, and says what is allowed.
    """


class NotVerified(Exception):
    """A second run left no results that could be compared; says why."""
