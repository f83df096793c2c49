"""What all tests share, as plugins that `tests` loads, too."""

from __future__ import annotations

pytest_plugins = ["sharing", "shared_programs"]
