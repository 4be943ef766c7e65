"""The one error a user's mistake raises."""


class InputError(ValueError):
    """Bad input: the message names the thing, its value, and the remedy, and fits on a line or two."""
