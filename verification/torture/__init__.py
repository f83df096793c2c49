"""Tables, histories and faults that a seed makes up, run for real, and judged by readers that are not ours."""
