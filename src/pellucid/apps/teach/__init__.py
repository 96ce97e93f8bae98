"""Teaching material: explained topics, pictures, exercises and worksheets."""

from pathlib import Path


def course_file(name: str) -> Path:
    """Return the path of a file of examples/, in the package or in the checkout."""
    here = Path(__file__).with_name("course")
    return (here if here.exists() else Path(__file__).parents[4] / "examples") / name
