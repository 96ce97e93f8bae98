"""Commands to copy. Nothing else below the apps knows how an option is written."""

import shlex

from pellucid.core.parts import imports


def command(*words: object, **settings: object) -> str:
    """Return a command with these settings, and an `--import` for all that is in use.

    >>> command("train", "my run", resume=True, **{"training.steps": 200})
    "pellucid train 'my run' --resume --training.steps 200"
    """
    options = [*settings.items(), *(("import", part) for part in imports())]
    written = list(map(str, words))
    for name, value in options:
        written += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(["pellucid", *written])
