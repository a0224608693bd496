"""`python -m balajoin`."""

import sys

from balajoin.cli import main

if __name__ == "__main__":
    sys.exit(main())
