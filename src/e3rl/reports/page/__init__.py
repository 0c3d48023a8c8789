"""One HTML file that shows results or a run: no network, readable without scripts."""
