"""`python -m pellucid` is the command `pellucid`."""

import sys

from pellucid.apps.cli.main import main

sys.exit(main())
