"""Run the command `pellucid` as `python -m pellucid`."""

import sys

from pellucid.apps.cli.main import main

sys.exit(main())
