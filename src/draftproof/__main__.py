"""`python -m draftproof`: the command line, where the installed command is not on the path."""

import sys

from draftproof.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
