"""Teaching: topics explained next to our own code, the articles' pictures."""

from pathlib import Path


def course_file(name: str) -> Path:
    """Return a file of examples/: in the package, or in the checkout that this is."""
    here = Path(__file__).with_name("course")
    return (here if here.exists() else Path(__file__).parents[4] / "examples") / name
