"""Speed and memory, as ratios and counts of one run: `make bench`. Nothing is asserted; the figures are printed."""
