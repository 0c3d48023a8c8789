"""Dynamics families, ensembles of them, and how they are fitted."""
