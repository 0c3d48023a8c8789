"""How results are summed up: intervals, comparisons of methods, and waiting times of which some never end."""
