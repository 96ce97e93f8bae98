"""`pellucid learn`: write the page that trains a Transformer in the browser."""

from pathlib import Path

from pellucid.apps.cli.view import shown
from pellucid.apps.view.page import template
from pellucid.system.files import write_atomically

PAGE = Path("learn.html")


def learn(output: Path = PAGE, open: bool = False) -> int:
    """Write the page that trains a Transformer from random weights, in the browser and offline.

    It learns English numbers in Korean, to reverse or to sort letters, or your own pairs. Loss,
    answers, attention and gradients follow while it learns; a setting can be changed, and one
    derivative broken.

    Args:
        output: The file to write.
        open: Open the page in the browser.
    """
    write_atomically(output, template("learn.html").encode("utf-8"))
    return shown([output], [output], "", open)
