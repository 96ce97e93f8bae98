"""`python -m pellucid` is the command `pellucid`."""

import sys

from pellucid.training.attempts import is_over

if is_over():
    sys.exit(1)  # before anything else is imported

from pellucid.apps.cli.main import main

sys.exit(main())
