"""`python -m pellucid` is the command `pellucid`."""

import sys

from pellucid.cli.main import main

sys.exit(main())
