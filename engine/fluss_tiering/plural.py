"""Numbers of things in sentences: 1 file, but 2 files."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 file" or "1,234 files".

    Args:
        number: How many there are.
        noun: The noun in the singular. Its plural has an s more.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
