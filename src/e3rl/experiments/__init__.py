"""Runs by name: what the command line trains, and the paper's experiments as data."""
