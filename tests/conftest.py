"""What all tests share, as plugins that the tests of `verification` load, too."""

from __future__ import annotations

pytest_plugins = ["sharing", "shared_programs"]
