"""The error of a user's mistake, by the library's own path."""

from stages.errors import InputError as InputError
from stages.errors import suggestion as suggestion
