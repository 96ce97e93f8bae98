"""Commands for the user to copy. No other module below the apps knows the syntax of options."""

import shlex

from pellucid.core.parts import imports


def command(*words: object, **settings: object) -> str:
    """Return a `pellucid` command with these options, and `--import` for each of the user's parts.

    words: the subcommand and its arguments. settings: options by name, with _ for -; True gives an
    option without a value. The user's parts are those that `core.parts.imports` names.

    >>> command("train", "my run", resume=True, **{"training.steps": 200})
    "pellucid train 'my run' --resume --training.steps 200"
    """
    options = [*settings.items(), *(("import", part) for part in imports())]
    written = list(map(str, words))
    for name, value in options:
        written += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(["pellucid", *written])
