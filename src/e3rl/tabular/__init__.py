"""Tabular E³: Algorithm 1 with counts of what was seen (Kearns and Singh's E³, where the paper starts)."""
