"""Faults that meet a run from outside: processes, calls, disks, clocks and logs."""
