"""The error of a user's mistake, by the library's own path."""

from quarkline.errors import InputError as InputError
from quarkline.errors import suggestion as suggestion
