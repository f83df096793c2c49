"""A program that does the pieces of a stage as a Spark worker does, and prints what they wrote and its peak memory."""

import json
import pickle
import sys
from pathlib import Path


def main() -> None:
    job = pickle.loads(Path(sys.argv[1]).read_bytes())
    results = list(job(range(len(job.work))))
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    written = sum(file.size_bytes for result in results for file in result.files)
    rows = sum(result.rows for result in results)
    sys.stdout.write(json.dumps({"rows": rows, "written": written, "peak": int(peak.split()[1]) << 10}))


if __name__ == "__main__":
    main()
