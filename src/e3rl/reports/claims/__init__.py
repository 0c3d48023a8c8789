"""What the paper states, beside what was measured here: a verdict on each sentence, computed from the data."""
