"""Generated calls of every RPC against a real server; one seed is one sequence of calls."""
