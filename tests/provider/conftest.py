"""What provider tests share: an empty AIRFLOW_HOME and a real tiering server with embedded storage."""

from __future__ import annotations

import os
import tempfile

# Airflow reads its home when it is first imported.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
