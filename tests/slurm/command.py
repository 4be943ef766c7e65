"""The command `quarkline` of this checkout."""

import sys

from workflows.command import main

if __name__ == "__main__":
    sys.exit(main())
