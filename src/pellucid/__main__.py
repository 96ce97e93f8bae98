"""`python -m pellucid` is the command `pellucid`."""

import sys

from pellucid.cli import main

sys.exit(main())
