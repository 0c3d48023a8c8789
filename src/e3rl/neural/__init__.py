"""Neural-E³: Algorithm 1 with ensembles of neural dynamics models (section 4)."""
