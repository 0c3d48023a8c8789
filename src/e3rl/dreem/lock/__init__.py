"""DREEM on the latent combination lock, whose candidates are a product over levels and states."""
