"""`pellucid completion SHELL`: print a script that completes commands and options."""

import contextlib
import io
import re
from typing import Literal

from pellucid.apps.cli.commands import COMMANDS, run_command
from pellucid.apps.cli.lab import VERBS
from pellucid.apps.cli.options import HELP_ALL
from pellucid.apps.lab.study_file import study_names
from pellucid.tasks.folder import shipped_models
from pellucid.training.config import recipe_names

SCRIPT = """\
_pellucid() {{
    local words cur="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[1]}}$((COMP_CWORD > 1))" in
{cases}
        *0) words="{commands}" ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _pellucid pellucid
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
"""zsh uses the script of bash."""


def completion(shell: Literal["bash", "zsh"], /) -> int:
    """Print a script with which a shell completes commands, options, recipes, studies and models.

    Recipes are those of train, studies those of lab, models those of evaluate, generate, view and
    serve; other words are completed as files. Write the script into a file once, and let ~/.bashrc
    or ~/.zshrc read that: source FILE.

    Args:
        shell: bash or zsh.
    """
    named = {name: list(shipped_models()) for name in ("evaluate", "generate", "view", "serve")}
    named |= {"train": recipe_names(), "lab": [*VERBS, *study_names()]}
    named |= {"completion": ["bash", "zsh"]}
    cases = []
    for name in COMMANDS:
        words = " ".join([*named.get(name, []), *_options(name)])
        cases.append(f'        {name}1) words="{words}" ;;')
    script = SCRIPT.format(cases="\n".join(cases), commands=" ".join(COMMANDS))
    print((ZSH if shell == "zsh" else "") + script, end="")
    return 0


def _options(name: str) -> list[str]:
    """Return the options that a command's help lists."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        run_command(name, ["--help" if name == "lab" else HELP_ALL])
        for verb in VERBS if name == "lab" else ():
            run_command(name, [verb, HELP_ALL])
    found = re.findall(r"^  (?:-h, )?(--[a-z][^\s,]*)", shown.getvalue(), re.MULTILINE)
    return list(dict.fromkeys(found))
