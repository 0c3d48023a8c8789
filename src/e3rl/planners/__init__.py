"""Planners: which policy to run, in the models' imagination."""
